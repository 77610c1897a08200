"""A real API server (etcd and kube-apiserver, no nodes) for the tests of this folder, and kubectl to speak with it."""

from __future__ import annotations

import base64
import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.kube.controllers import Controller, Controllers
from tests.kube.operator_parts import Api, Operator
from tests.kube.sharing import SharedOperator, environment_of, shared
from urllib3.exceptions import InsecureRequestWarning

from merlot.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_S = 180
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
OWN, SHARED = "own-", "shared-"
"""Prefixes of namespaces: of tests with operators of their own, and of those that share one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that change a CRD at the end. Watches that are older than the change can miss what comes after it."""
    items.sort(key=lambda item: "open_templates" in getattr(item, "fixturenames", ()))


@dataclass(frozen=True)
class Kubectl:
    """kubectl as an administrator of the API server."""

    program: Path
    url: str
    token: str
    cache: Path
    namespace: str = ""

    def within(self, namespace: str) -> Kubectl:
        """kubectl in another namespace."""
        return replace(self, namespace=namespace)

    def __call__(self, *arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; the caller looks at the exit code."""
        server = (f"--server={self.url}", f"--token={self.token}", "--insecure-skip-tls-verify=true")
        place = (f"--namespace={self.namespace}",) if self.namespace else ()
        command = [self.program, f"--cache-dir={self.cache}", *server, *place, *arguments]
        environment = {**os.environ, "KUBECONFIG": os.devnull}
        return subprocess.run(
            command, check=False, input=text, capture_output=True, text=True, timeout=60, env=environment
        )

    def check(self, *arguments: str | Path, text: str | None = None) -> str:
        """Run a command that must succeed; returns its output."""
        done = self(*arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """Starts an API server with nothing in it. Needs the programs of `setup-envtest use -p path`."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    missing = [name for name in PROGRAMS if not (assets / name).is_file()]
    if missing:
        pytest.skip(f"set KUBEBUILDER_ASSETS to a folder with {', '.join(PROGRAMS)} (missing: {', '.join(missing)})")
    folder = tmp_path_factory.mktemp("kube")
    client_port, peer_port, port = (free_port() for _ in range(3))
    token = secrets.token_hex(16)
    with ExitStack() as stack:
        stack.enter_context(_Process(_etcd(assets, folder, client_port, peer_port), folder / "etcd.log"))
        server = _Process(_api_server(assets, folder, client_port, port, token), folder / "kube-apiserver.log")
        stack.enter_context(server)
        url = f"https://127.0.0.1:{port}"
        _wait_until_ready(url, token, server)
        yield Kubectl(assets / "kubectl", url, token, folder / "cache")


def _etcd(assets: Path, folder: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        *(str(assets / "etcd"), "--name=test", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}"),
    ]


def _api_server(assets: Path, folder: Path, etcd_port: int, port: int, token: str) -> list[str]:
    key, tokens = folder / "service-account.key", folder / "tokens.csv"
    key.write_text(_new_private_key())
    tokens.write_text(f'{token},admin,admin,"system:masters"\n')
    return [
        *(str(assets / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd_port}"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}"),
        *(f"--token-auth-file={tokens}", "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"),
        # No fair shares: nobody else asks.
        "--enable-priority-and-fairness=false",
        *("--service-account-issuer=https://test", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/24"),
    ]


def _new_private_key() -> str:
    """An EC private key on P-256 in PEM: SEQUENCE {1, 32 random bytes, [0] the curve}."""
    number = secrets.token_bytes(32)
    encoded = bytes.fromhex("30310201010420") + number + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(encoded).decode()}\n-----END EC PRIVATE KEY-----\n"


class _Process:
    """A program that runs while the context is open."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            # A third less CPU for three times the garbage.
            environment = {**os.environ, "GOGC": "400"}
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def assert_runs(self) -> None:
        assert self._process.poll() is None, self._log.read_text()[-2000:]


def _wait_until_ready(url: str, token: str, server: _Process) -> None:
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {token}"})
    deadline = time.monotonic() + START_S
    while True:
        server.assert_runs()
        try:
            with urllib.request.urlopen(request, timeout=5, context=trust):
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, f"no API server after {START_S} s"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def merlot_api(kubectl: Kubectl) -> Kubectl:
    """An API server that knows Merlot's kinds."""
    kubectl.check("apply", "-f", ROOT / "crds")
    kubectl.check("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    for definition in json.loads(kubectl.check("get", "crd", "-o", "json"))["items"]:
        assert "NonStructuralSchema" not in {one["type"] for one in definition["status"]["conditions"]}
    return kubectl


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """How the namespaces of the test begin: the shared operator serves all that begin with its own prefix."""
    return SHARED if "running" in request.fixturenames else OWN


@pytest.fixture(scope="session")
def namespaces(merlot_api: Kubectl) -> Callable[[str], AbstractContextManager[Api]]:
    """Makes a namespace that begins with a prefix."""

    @contextmanager
    def make(prefix: str) -> Iterator[Api]:
        api = Api(merlot_api.url, merlot_api.token, f"{prefix}{secrets.token_hex(4)}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureRequestWarning)
            api.create_namespace()
        yield api
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureRequestWarning)
            api.withdraw()

    return make


@pytest.fixture
def api(namespaces: Callable[[str], AbstractContextManager[Api]], prefix: str) -> Iterator[Api]:
    """A namespace of its own."""
    with namespaces(prefix) as api:
        yield api


@pytest.fixture
def other(namespaces: Callable[[str], AbstractContextManager[Api]], prefix: str) -> Iterator[Api]:
    """Another namespace."""
    with namespaces(prefix) as api:
        yield api


@pytest.fixture(scope="session")
def controllers() -> Iterator[Controllers]:
    """All that there are."""
    with Controllers() as all_of_them:
        yield all_of_them


@pytest.fixture
def controller(controllers: Controllers, api: Api) -> Iterator[Controller]:
    """The namespace's controller, without tables."""
    with controllers.one(api.namespace) as one:
        yield one


@pytest.fixture
def settings(api: Api, controller: Controller, tmp_path: Path) -> dict[str, str]:
    """The environment of an operator of this namespace."""
    return {
        **environment_of(tmp_path, api.url, api.token),
        "MERLOT_NAMESPACE": api.namespace,
        "MERLOT_METASTORE": f"sqlite://{tmp_path / 'meta.db'}",
        "MERLOT_CONTROLLER_URL": controller.url,
    }


@pytest.fixture
def operator(settings: dict[str, str], tmp_path: Path) -> Operator:
    """An operator that is not started yet, of a test that starts it anew or asks how it ends; a context manager."""
    return Operator(settings, tmp_path / "operator.log")


@pytest.fixture(scope="session")
def shared_operator(
    merlot_api: Kubectl, controllers: Controllers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """The operator of all tests that are not about its start or its settings."""
    folder = tmp_path_factory.mktemp("shared")
    with shared(merlot_api, controllers, folder, SHARED, f"sqlite://{folder}/{{namespace}}.db") as operator:
        yield operator


@pytest.fixture
def running(shared_operator: Operator, api: Api, controller: Controller) -> Iterator[SharedOperator]:
    """An operator that runs."""
    if shared_operator.exit_code() is not None:
        shared_operator.start()
    yield SharedOperator(shared_operator, api.namespace)
    assert shared_operator.exit_code() is None, shared_operator.log[-4000:]


@pytest.fixture(scope="session")
def helm() -> Path:
    """The program that renders the chart."""
    path = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent") / "helm"
    if not path.is_file():
        pytest.skip("set KUBEBUILDER_ASSETS to a folder that also holds helm")
    return path
