"""A real API server (etcd and kube-apiserver, no nodes) for the tests of this folder, and kubectl to speak with it."""

import base64
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from operator_parts import Api, Controller, Operator, eventually, write_kubeconfig
from urllib3.exceptions import InsecureRequestWarning

from merlot_operator.crds import definitions

ROOT = Path(__file__).resolve().parents[2]
START_S = 180
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")


@dataclass(frozen=True)
class Kubectl:
    """kubectl as an administrator of the API server."""

    program: Path
    url: str
    token: str
    cache: Path

    def __call__(self, *arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; the caller looks at the exit code."""
        server = (f"--server={self.url}", f"--token={self.token}", "--insecure-skip-tls-verify=true")
        command = [self.program, f"--cache-dir={self.cache}", *server, *arguments]
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
    client_port, peer_port, port = _free_ports(3)
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
        *("--service-account-issuer=https://test", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/24"),
    ]


def _new_private_key() -> str:
    """An EC private key on P-256 in PEM: SEQUENCE {1, 32 random bytes, [0] the curve}."""
    number = secrets.token_bytes(32)
    encoded = bytes.fromhex("30310201010420") + number + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(encoded).decode()}\n-----END EC PRIVATE KEY-----\n"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class _Process:
    """A program that runs while the context is open."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self) -> "_Process":
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
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        kubectl.check("apply", "-f", path)
    kubectl.check("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    return kubectl


@pytest.fixture
def api(merlot_api: Kubectl) -> Iterator[Api]:
    """A namespace of its own."""
    namespace = f"n{secrets.token_hex(4)}"
    merlot_api.check("create", "namespace", namespace)
    api = Api(merlot_api.url, merlot_api.token, namespace)
    yield api
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureRequestWarning)
        api.withdraw()


@pytest.fixture
def open_templates(merlot_api: Kubectl, api: Api) -> Iterator[None]:
    """Tables may say of their pods whatever Kubernetes takes, as if another release had installed its CRDs so."""
    spec = {"schema": {"fields": [{"name": "a", "type": "STRING"}]}}
    spec["tenants"] = {"server": {"podTemplate": {"spec": {"hostPID": True}}}}
    probe = {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": {"name": "probe"}, "spec": spec}
    tables = next(one for one in definitions(unrestricted=True) if one["spec"]["names"]["kind"] == "Table")
    try:
        merlot_api.check("apply", "-f", "-", text=yaml.safe_dump(tables))
        eventually(lambda: api.refusal("tables", probe), "")
        yield
    finally:
        merlot_api.check("apply", "-f", ROOT / "crds" / "table.yaml")
        eventually(lambda: "hostPID" in api.refusal("tables", probe))


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A controller without tables."""
    with Controller() as one:
        yield one


@pytest.fixture
def settings(api: Api, controller: Controller, tmp_path: Path) -> dict[str, str]:
    """The environment of an operator of this namespace."""
    return {
        "KUBECONFIG": str(write_kubeconfig(tmp_path / "kubeconfig", api.url, api.token)),
        "MERLOT_NAMESPACE": api.namespace,
        "MERLOT_METASTORE": f"sqlite://{tmp_path / 'meta.db'}",
        "MERLOT_DEEP_STORE": "s3://bucket/merlot",
        "MERLOT_RUNTIME_IMAGE": "merlot-runtime:1",
        "MERLOT_SPARK_IMAGE": "merlot-spark:1",
        "MERLOT_SPARK_DRIVER_ROLE": "ClusterRole/merlot-spark-driver",
        "MERLOT_CONTROLLER_URL": controller.url,
        "MERLOT_LOG_FORMAT": "line",
    }


@pytest.fixture
def operator(settings: dict[str, str], tmp_path: Path) -> Operator:
    """An operator that is not started yet; a context manager."""
    return Operator(settings, tmp_path / "operator.log")


@pytest.fixture(scope="session")
def helm() -> Path:
    """The program that renders the chart."""
    path = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent") / "helm"
    if not path.is_file():
        pytest.skip("set KUBEBUILDER_ASSETS to a folder that also holds helm")
    return path
