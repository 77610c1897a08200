"""Parts of the operator's tests: the API server's client, and the operator as a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
import yaml
from requests.adapters import HTTPAdapter
from tests.support.fork_server import Child
from urllib3.util import Retry

from merlot.ports import free_port

PATIENCE_S = 150.0
"""For machines that do other work too; nothing takes more than seconds on one that does not."""
POLL_S = 0.03
"""Between two looks, or longer: looking takes a quarter of the time at most."""
IDLE_S = 4.0
KINDS = {
    "tables": "apis/merlot.dev/v1alpha1",
    "mergerolluptasks": "apis/merlot.dev/v1alpha1",
    "upsertconfigs": "apis/merlot.dev/v1alpha1",
    "deployments": "apis/apps/v1",
    "statefulsets": "apis/apps/v1",
    "jobs": "apis/batch/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    "networkpolicies": "apis/networking.k8s.io/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "rolebindings": "apis/rbac.authorization.k8s.io/v1",
    **dict.fromkeys(
        ("services", "configmaps", "serviceaccounts", "pods", "persistentvolumeclaims", "events", "resourcequotas"),
        "api/v1",
    ),
}
DECLARED = ("tables", "mergerolluptasks", "upsertconfigs")
CHILDREN = (
    *("deployments", "statefulsets", "services", "configmaps", "serviceaccounts", "jobs", "poddisruptionbudgets"),
    *("networkpolicies", "rolebindings"),
)


STRICTLY = {"dryRun": "All", "fieldValidation": "Strict"}
"""As kubectl asks."""
_OF_A_RULE = re.compile(r'Invalid value: "(?:object|array|string|boolean|integer|map)": (.*)')


class GoneError(AssertionError):
    """There is no such object."""


class Api:
    """One namespace of an API server."""

    def __init__(self, url: str, token: str, namespace: str) -> None:
        self.url, self.token, self.namespace = url, token, namespace
        self._session = requests.Session()
        # A kind that was just defined is not stored yet: "too many requests, retry after 1 s".
        patient = Retry(total=30, status_forcelist=(429,), allowed_methods=None, raise_on_status=False)
        self._session.mount(url, HTTPAdapter(max_retries=patient))
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._session.verify = self._session.trust_env = False

    def create_namespace(self, labels: Mapping[str, str] | None = None) -> None:
        """Make the namespace itself."""
        body = {"metadata": {"name": self.namespace, "labels": dict(labels or {})}}
        self._checked(self._session.post(f"{self.url}/api/v1/namespaces", json=body))

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        """URL of a kind or an object."""
        parts = [self.url, KINDS[plural], "namespaces", self.namespace, plural, name, subresource]
        return "/".join(part for part in parts if part)

    def get(self, plural: str, name: str) -> Any:
        """One object, or None."""
        answer = self._session.get(self.path(plural, name))
        return None if answer.status_code == 404 else self._checked(answer)

    def list(self, plural: str) -> list[Any]:
        """All objects of a kind."""
        return list(self._checked(self._session.get(self.path(plural)))["items"])

    def create(self, plural: str, body: Mapping[str, Any]) -> Any:
        """Create an object; its status too, if it has one."""
        made = self._checked(self._session.post(self.path(plural), json=body))
        if "status" in body:
            made = self.patch(plural, made["metadata"]["name"], {"status": body["status"]}, "status")
        return made

    def refusal(self, plural: str, body: Mapping[str, Any]) -> str:
        """What is said against a new object; empty if it would be taken."""
        return self._refusal(self._session.post(self.path(plural), json=body, params=STRICTLY))

    def broken_rules(self, plural: str, body: Mapping[str, Any], *, is_change: bool = False) -> set[tuple[str, str]]:
        """Fields and messages of the rules that an object breaks, new or in the place of the one of its name."""
        answer = (
            self._put(plural, body, STRICTLY)
            if is_change
            else self._session.post(self.path(plural), json=body, params=STRICTLY)
        )
        causes = [] if answer.ok else answer.json()["details"]["causes"]
        found = [(one["field"], _OF_A_RULE.fullmatch(one["message"])) for one in causes]
        assert all(match for _, match in found), f"{body} breaks the schema: {causes}"
        return {(field, match[1]) for field, match in found if match}

    def replace(self, plural: str, body: Mapping[str, Any]) -> Any:
        """Put an object in the place of the one of its name."""
        return self._checked(self._put(plural, body, {}))

    def change_refusal(self, plural: str, body: Mapping[str, Any]) -> str:
        """What is said against an object that replaces the one of its name; empty if it would be taken."""
        return self._refusal(self._put(plural, body, STRICTLY))

    def _put(self, plural: str, body: Mapping[str, Any], query: Mapping[str, str]) -> requests.Response:
        name = body["metadata"]["name"]
        version = self.get(plural, name)["metadata"]["resourceVersion"]
        changed = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return self._session.put(self.path(plural, name), json=changed, params=query)

    def patch(self, plural: str, name: str, patch: Mapping[str, Any], subresource: str = "") -> Any:
        """Merge patch."""
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self._session.patch(self.path(plural, name, subresource), data=json.dumps(patch), headers=headers)
        return self._checked(answer)

    def delete(self, plural: str, name: str) -> None:
        """Delete; at once, since nobody runs pods here."""
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        answer = self._session.delete(self.path(plural, name), json=body)
        if answer.status_code != 404:
            self._checked(answer)

    def apply(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Apply objects of any kind, in whatever namespace they name."""
        content = {"Content-Type": "application/apply-patch+yaml"}
        for one in documents:
            query = {"fieldManager": "test", "force": "true"}
            self._checked(self._session.patch(self._own_path(one), json=one, params=query, headers=content))

    def remove(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Delete what was applied."""
        for one in documents:
            with contextlib.suppress(GoneError):
                self._checked(self._session.delete(self._own_path(one)))

    def account_token(self, account: str) -> str:
        """What a pod with this service account says."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self._checked(self._session.post(self.path("serviceaccounts", account, "token"), json=body))
        return str(made["status"]["token"])

    def _own_path(self, body: Mapping[str, Any]) -> str:
        version, metadata = body["apiVersion"], body["metadata"]
        place = ["namespaces", metadata["namespace"]] if "namespace" in metadata else []
        group = ("apis" if "/" in version else "api") + f"/{version}"
        return "/".join([self.url, group, *place, f"{body['kind'].lower()}s", metadata["name"]])

    def withdraw(self) -> None:
        """Leave nothing declared: an operator of the whole cluster would take it up. One that still runs, and puts its
        finalizer back, lets it go at once."""
        released = {"metadata": {"finalizers": None, "annotations": {"merlot.dev/force-delete": "true"}}}
        for plural in DECLARED:
            for one in self.list(plural):
                name = one["metadata"]["name"]
                with contextlib.suppress(GoneError):
                    self.patch(plural, name, released)
                self.delete(plural, name)

    def versions(self) -> dict[str, str]:
        """The resource version of every object but events."""
        return {
            f"{plural}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
            for plural in (*CHILDREN, "tables", "pods", "persistentvolumeclaims")
            for one in self.list(plural)
        }

    def children(self) -> set[str]:
        """What there is of the operator's own."""
        return {
            f"{plural}/{one['metadata']['name']}"
            for plural in CHILDREN
            for one in self.list(plural)
            if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "merlot-operator"
        }

    def condition(self, kind: str, name: str = "flights", plural: str = "tables") -> dict[str, Any]:
        """A condition, empty if it is not there."""
        conditions = (self.get(plural, name) or {}).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def reason(self, kind: str, name: str = "flights", plural: str = "tables") -> str:
        """Status and reason of a condition: `False/NoBroker`."""
        condition = self.condition(kind, name, plural)
        return f"{condition.get('status')}/{condition.get('reason')}"

    def event_reasons(self) -> set[str]:
        """Reasons of all events."""
        return {one["reason"] for one in self.list("events")}

    @staticmethod
    def _refusal(answer: requests.Response) -> str:
        return "" if answer.ok else str(answer.json()["message"])

    @staticmethod
    def _checked(answer: requests.Response) -> Any:
        if answer.status_code == 404:
            raise GoneError(f"{answer.request.method} {answer.url}")
        assert answer.ok, f"{answer.request.method} {answer.url}: {answer.text[:1000]}"
        return answer.json()


def table_word(revision: int = 1, servers: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A controller's word on a table of 3 segments; all is well unless `more` says otherwise."""
    brokers = {"Broker_a_8099": {"revision": revision}}
    counts = {"segments": 3, "totalDocs": 336_776, "sizeBytes": 9_540_000, "replication": 1, "suspended": False}
    troubles = {"segmentsUnavailable": 0, "segmentsLoading": 0, "segmentsFailed": 0, "unpartitioned": 0}
    word = {"revision": revision, **counts, **troubles, "moving": False, "brokers": brokers, "servers": servers or {}}
    return word | more


def server_word(revision: int = 1, **more: Any) -> dict[str, Any]:
    """A controller's word on a server of a table."""
    marks = {"draining": False, "leaving": False, "drained": False}
    return {
        "live": True,
        "revision": revision,
        "assigned": 3,
        "loaded": 3,
        "numErrors": 0,
        "errors": {},
        **marks,
        **more,
    }


class Operator:
    """The operator as a process of its own."""

    def __init__(
        self,
        environment: Mapping[str, str],
        log: Path,
        *,
        program: str = "tests.kube.quick_operator",
        arguments: Sequence[str] = (),
        is_fresh: bool = False,
    ):
        """is_fresh: with an interpreter of its own, as a pod has it."""
        self.port = free_port()
        self._environment = {**os.environ, **environment, "MERLOT_LIVENESS_PORT": str(self.port)}
        self._log, self._program, self._arguments, self._is_fresh = log, program, arguments, is_fresh
        self._process: Child | None = None

    def __enter__(self) -> Operator:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What it logged, in all its lives."""
        return self._log.read_text()

    def start(self) -> None:
        """Begin a life."""
        self._process = Child(
            self._program, self._arguments, self._log, environment=self._environment, is_fresh=self._is_fresh
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it; returns its exit code."""
        assert self._process is not None
        self._process.send(how)
        return self._process.wait(PATIENCE_S)

    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def dies_within(self, passes: int) -> bool:
        """Whether it ends by itself before it has made so many passes, or has listed everything and makes none."""
        assert self._process is not None
        deadline, before, since = time.monotonic() + PATIENCE_S, 0.0, float("inf")
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.log[-4000:]
            with contextlib.suppress(OSError):
                self.readiness()
                made = self.metric("merlot_operator_passes_total")
                since = time.monotonic() if made != before or since == float("inf") else since
                before = made
                if made >= passes or time.monotonic() - since > IDLE_S:
                    return False
            time.sleep(POLL_S)
        return True

    def readiness(self) -> str:
        """Return the text of `/readyz`; OSError while the operator is not ready."""
        return self._told("readyz")

    def _told(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, labels: str = "") -> float:
        """Sum of a metric's samples; of those alone that have these labels."""
        text = self._told("metrics")
        samples = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(float(value) for found, value in samples if labels in found)

    def rss_mb(self) -> float:
        """Resident memory."""
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        [kib] = re.findall(r"VmRSS:\s+(\d+) kB", text)
        return int(kib) / 1024

    def cpu_seconds(self) -> float:
        """User and system time."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def settle(self, passes: int = 8) -> None:
        """Until `passes` passes went by, after which nothing was written."""

        def work() -> tuple[float, float]:
            return self.metric("merlot_operator_passes_total"), self.metric("merlot_operator_writes")

        settle_by(work, passes, lambda: self.log)


def settle_by(work: Callable[[], tuple[float, float]], passes: int, log: Callable[[], str]) -> None:
    """Until so many passes went by without a write; `work` tells how many of both there were."""
    deadline = time.monotonic() + PATIENCE_S
    start: tuple[float, float] | None = None
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            now = work()
            if start is None or now[1] != start[1]:
                start = now
            elif now[0] >= start[0] + passes:
                return
        time.sleep(POLL_S)
    raise AssertionError(f"the operator goes on writing, or makes no passes: {log()[-4000:]}")


def eventually(
    claim: Callable[[], Any], expected: Any = True, *, log: Callable[[], str] = str, patience_s: float = PATIENCE_S
) -> None:
    """Wait until the claim is as expected."""
    deadline, started = time.monotonic() + patience_s, time.monotonic()
    while (got := claim()) != expected:
        now = time.monotonic()
        assert now < deadline, f"expected {expected!r}, got {got!r}\n{log()[-4000:]}"
        time.sleep(max(POLL_S, 3 * (now - started)))
        started = time.monotonic()


def write_kubeconfig(path: Path, url: str, token: str) -> Path:
    """A kubeconfig of one user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "test", "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def run_pods(api: Api, *, is_ready: bool = True) -> None:
    """What controllers and kubelets do: every pod that shall be there is, and is ready or is not."""
    for plural in ("deployments", "statefulsets"):
        for owner in api.list(plural):
            wanted = {f"{owner['metadata']['name']}-{number}" for number in range(owner["spec"]["replicas"])}
            there = {one["metadata"]["name"] for one in api.list("pods") if _is_of(one, owner)}
            for name in sorted(wanted - there):
                api.create("pods", _pod(owner, name, is_ready))
            for name in sorted(there - wanted):
                api.delete("pods", name)
    run_jobs(api)
    watch_budgets(api)


def run_jobs(api: Api) -> None:
    """Every Job that shall run has a pod at work."""
    for job in api.list("jobs"):
        if not job["spec"].get("suspend") and not job["status"].get("conditions"):
            api.patch("jobs", job["metadata"]["name"], {"status": {"active": 1}}, "status")


def watch_budgets(api: Api, *, num_allowed: int = 1) -> None:
    """What the disruption controller does: every budget allows so many pods to go."""
    for budget in api.list("poddisruptionbudgets"):
        status = {
            "observedGeneration": budget["metadata"]["generation"],
            "disruptionsAllowed": num_allowed,
            "disruptedPods": None,
            **dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 1),
        }
        api.patch("poddisruptionbudgets", budget["metadata"]["name"], {"status": status}, "status")


def _is_of(pod: Any, owner: Any) -> bool:
    return bool(owner["spec"]["selector"]["matchLabels"].items() <= (pod["metadata"].get("labels") or {}).items())


def _pod(owner: Any, name: str, is_ready: bool) -> dict[str, Any]:
    template = owner["spec"]["template"]
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    spec = {**template["spec"]}
    spec.pop("serviceAccountName", None)
    spec.pop("serviceAccount", None)
    claims = [one["metadata"]["name"] for one in owner["spec"].get("volumeClaimTemplates", ())]
    spec["volumes"] = [*spec["volumes"], *({"name": claim, "emptyDir": {}} for claim in claims)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **template["metadata"]},
        "spec": spec,
        "status": {"phase": "Running", "conditions": [ready]},
    }
