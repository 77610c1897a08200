"""What users do (kubectl, helm) against the cluster that KUBECONFIG names, and waiting for what comes of it."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.e2e_watch import Api

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "merlot"
MANAGED = "app.kubernetes.io/managed-by=merlot-operator"
LOOK_S = 5.0
"""Longest time between two looks, for what no watch tells."""
WAIT_S = 300.0
"""For what takes seconds, on a machine that is busy with something else."""
SWARM_S = 0.1
"""Changes come in swarms."""
RESTRICTED = "pod-security.kubernetes.io/enforce"
USER = 10001
SMALL: dict[str, Any] = {"requests": {"cpu": "10m", "memory": "64Mi"}}
ASK = """
import json, sys, urllib.request
body = json.dumps({"sql": sys.argv[2]}).encode()
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=30).read().decode())
"""

Json = dict[str, Any]


def program(name: str) -> str | None:
    """Path of kubectl or helm: of PATH, else of KUBEBUILDER_ASSETS."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    return shutil.which(name) or (str(folder / name) if (folder / name).exists() else None)


@dataclass
class Cluster:
    """One namespace of a cluster."""

    namespace: str
    images: Mapping[str, str]
    """By name: operator, runtime, spark, e2e, and runtime-next, the one that pods are rolled to."""
    kubectl_path: str
    helm_path: str

    def kubectl(self, *arguments: str, text: str | None = None, timeout_s: float = 2 * WAIT_S) -> str:
        """Run in the namespace; what fails raises, with what it said."""
        return _run([self.kubectl_path, f"--namespace={self.namespace}", *arguments], text, timeout_s)

    def helm(self, *arguments: str, timeout_s: float = 2 * WAIT_S) -> str:
        """Run in the namespace."""
        return _run([self.helm_path, f"--namespace={self.namespace}", *arguments], None, timeout_s)

    def apply(self, *documents: Json) -> None:
        """As users do."""
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def patch(self, kind: str, name: str, change: Json) -> None:
        """Merge patch."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    @cached_property
    def api(self) -> Api:
        """The namespace without kubectl."""
        return Api(self.namespace)

    def get(self, kind: str, name: str) -> Json:
        """One object; empty if it is not there."""
        return self.api.get(kind, name)

    def all(self, kinds: str, selector: str = "") -> list[Json]:
        """Objects by labels."""
        return self.api.all(kinds, selector)

    def pods(self, component: str) -> dict[str, Json]:
        """Pods of a role that are not going away, by name."""
        found = self.all("pods", f"{MANAGED},merlot.dev/component={component}")
        return {one["metadata"]["name"]: one for one in found if "deletionTimestamp" not in one["metadata"]}

    def condition(self, kind: str, name: str, type_: str) -> Json:
        """A condition that was decided for the object as it is now; empty if there is none yet."""
        found = self.get(kind, name)
        for one in found.get("status", {}).get("conditions", ()):
            if one["type"] == type_ and one["observedGeneration"] == found["metadata"]["generation"]:
                return dict(one)
        return {}

    def holds(self, kind: str, name: str, type_: str) -> bool:
        """Whether a condition is True for the object as it is now."""
        return self.condition(kind, name, type_).get("status") == "True"

    def await_true(self, what: str, is_so: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
        """Look at every change until it is so; what it gave. Fails with what the cluster looks like."""
        started = time.monotonic()
        changed = self.api.changed
        while not (found := is_so()):
            if time.monotonic() > started + timeout_s:
                raise AssertionError(f"{what}: not after {timeout_s:.0f} s\n{self.describe()}")
            changed.wait(LOOK_S)
            changed.clear()
            time.sleep(SWARM_S)
        print(f"{time.strftime('%H:%M:%S')} {what}, after {time.monotonic() - started:.1f} s")
        return found

    def ask(self, sql: str, asker: "Cluster | None" = None) -> list[list[Any]]:
        """The rows that brokers answer, as asked from the pod of the S3 server, which may be in `asker`'s namespace."""
        # Its address, not its name: a busy cluster's DNS fails now and then, and is not what is tested.
        address = self.get("service", "merlot-broker")["spec"]["clusterIP"]
        told = (asker or self).api.execute("s3", ["python", "-c", ASK, f"http://{address}:8099/query/sql", sql])
        answer = json.loads(told)
        assert not answer["exceptions"], answer["exceptions"]
        return list(answer["resultTable"]["rows"])

    def describe(self) -> str:
        """What a person would look at."""
        parts = [
            self.kubectl("get", "merlot,pods,jobs,pvc", "-o", "wide"),
            self.kubectl("get", "merlot", "-o", "yaml")[-6000:],
            self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-5000:],
        ]
        for one in self.all("pods"):
            name = one["metadata"]["name"]
            logs = [self.kubectl_path, f"--namespace={self.namespace}", "logs", name, "--tail=12"]
            done = subprocess.run(logs, capture_output=True, text=True, check=False)
            parts.append(f"--- {name}\n{done.stdout[-2500:]}")
        return "\n".join(parts)


def pod(name: str, image: str, arguments: list[str], environment: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """A pod that a restricted namespace accepts."""
    container = {
        "name": "main",
        "image": image,
        "args": arguments,
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "resources": SMALL,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def _run(command: list[str], text: str | None, timeout_s: float) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        shown = " ".join(command[1:8])
        raise AssertionError(
            f"{Path(command[0]).name} {shown}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout
