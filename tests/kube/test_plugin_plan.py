"""`kubectl merlot plan` against an API server: the server's own defaults and rules decide, nothing is changed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.operator_parts import Api, write_kubeconfig
from tests.kube.test_operator import flights

from merlot_operator.plugin.main import main

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: object
    stdout: str
    stderr: str


@pytest.fixture
def merlot(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs `kubectl merlot …` in the test's namespace, in this process."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, api.token)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("PATH", f"{os.environ['KUBEBUILDER_ASSETS']}:{os.environ['PATH']}")

    def run(command: str, *arguments: str, text: str = "") -> Done:
        monkeypatch.setattr("sys.argv", ["kubectl-merlot", command, f"--namespace={api.namespace}", *arguments])
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        with pytest.raises(SystemExit) as end:
            main()
        return Done(end.value.code or 0, *capsys.readouterr())

    return run


def test_plan_says_what_a_manifest_would_do(api: Api, merlot: Any) -> None:
    fresh = merlot("plan", "-f", "-", text=yaml.safe_dump(flights()))
    assert (fresh.returncode, fresh.stdout) == (0, "table/flights: new\n"), fresh.stderr
    assert api.get("tables", "flights") is None
    api.create("tables", flights())
    version = api.get("tables", "flights")["metadata"]["resourceVersion"]
    same = merlot("plan", "-f", "-", text=yaml.safe_dump(flights()))
    assert same.stdout == "table/flights: nothing changes\n"
    tenants = {"server": {"replicas": 2, "resources": {"limits": {"memory": "2Gi"}}}}
    changed = merlot("plan", "-f", "-", text=yaml.safe_dump(flights(tenants=tenants, limits={"timeoutMs": 500})))
    assert changed.returncode == 0
    assert changed.stdout.splitlines()[0].startswith("table/flights: ")
    for words in ("hot  spec.limits", "scale  spec.tenants.server.replicas", "restart  spec.tenants.server.resources"):
        assert words in changed.stdout
    assert api.get("tables", "flights")["metadata"]["resourceVersion"] == version


def test_plan_shows_what_the_api_server_refuses(api: Api, merlot: Any) -> None:
    api.create("tables", flights())
    refused = merlot("plan", "-f", "-", text=yaml.safe_dump(flights(timeColumn="day")))
    assert refused.returncode != 0
    assert "timeColumn" in refused.stdout + refused.stderr


def installed(api: Api, **environment: str) -> None:
    """An operator's Deployment as the chart makes it; no pod comes of it here."""
    labels = {"app.kubernetes.io/name": "merlot", "app.kubernetes.io/component": "operator"}
    known = {
        "MERLOT_NAMESPACE": api.namespace,
        "MERLOT_METASTORE": "zk://zookeeper:2181/merlot",
        "MERLOT_DEEP_STORE": "s3://own/segments",
        "MERLOT_RUNTIME_IMAGE": "merlot",
        "MERLOT_SPARK_IMAGE": "merlot-spark",
    }
    container = {
        "name": "operator",
        "image": "merlot-operator",
        "env": [{"name": name, "value": value} for name, value in (known | environment).items()],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    api.create("deployments", {"metadata": {"name": "merlot-operator", "labels": labels}, "spec": spec})


def test_plan_shows_what_the_operator_would_refuse(api: Api, merlot: Any) -> None:
    def plan(secret: str, uri: str = "s3://own/segments/x") -> tuple[int, str]:
        store = {"uri": uri, "secretRef": secret}
        done = merlot("plan", "-f", "-", text=yaml.safe_dump(flights(deepStore=store)))
        return done.returncode, done.stdout + done.stderr

    code, told = plan("other")
    assert (code, told.splitlines()[0]) == (0, "table/flights: new")
    assert "no operator serves the namespace" in told
    installed(api, MERLOT_TABLE_SECRETS="team-*", MERLOT_DEEP_STORE_PREFIXES="s3://theirs/data")
    code, told = plan("other")
    assert (code, told.splitlines()[0]) == (2, "table/flights: refused: the cluster would stay as it is")
    assert "spec.deepStore.secretRef" in told
    assert 'Tables may name Secrets called team-*, not "other"; deepStore.tableSecrets of the chart says so' in told
    assert plan("team-a") == (0, "table/flights: new\n")
    assert plan("team-a", "s3://theirs/data/x") == (0, "table/flights: new\n")
    code, told = plan("team-a", "s3://strange/data")
    assert code == 2
    assert "spec.deepStore.uri" in told
    api.create("tables", flights(deepStore={"uri": "s3://own/segments/x", "secretRef": "team-a"}))
    code, told = plan("other")
    assert code == 2
    assert "refused  spec.deepStore.secretRef: team-a → other" in told


def test_an_absent_table_and_a_silent_cluster_are_said_in_a_line(api: Api, merlot: Any) -> None:
    absent = merlot("status", "nope")
    assert absent.returncode == 1
    assert 'tables.merlot.dev "nope" not found' in absent.stderr
    api.create("tables", flights())
    status = merlot("status", "flights")
    assert "The controller does not answer" in status.stdout
    query = merlot("query", "flights", "SELECT 1")
    assert query.returncode == 1
    assert "merlot-broker" in query.stderr
