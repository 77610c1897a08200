"""The chart's Job that refuses to take the operator away from what needs it, with the chart's rights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from operator_parts import Api, Operator, write_kubeconfig
from test_chart import STORE, documents, render
from test_operator import flights, wait
from test_operator_rollups import rollup

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


GONE = "was-deleted"


@pytest.fixture
def account(helm: Path, merlot_api: Any, api: Api, tmp_path: Path) -> Path:
    """A kubeconfig of the operator's account, with the chart's rights in the namespace and those that the Job brings;
    GONE is on the list of namespaces, and is not there."""
    values = {**STORE, "scope": {"namespaces": [api.namespace, GONE]}}
    done = render(helm, tmp_path, values, f"--namespace={api.namespace}")
    rights = [one for one in documents(done.stdout) if _is_right(one)]
    merlot_api.check("apply", "-f", "-", text=yaml.safe_dump_all(rights))
    token = merlot_api.check("create", "token", "merlot-operator", f"--namespace={api.namespace}").strip()
    return write_kubeconfig(tmp_path / "account", api.url, token)


def _is_right(one: dict[str, Any]) -> bool:
    is_own = one["kind"] in ("ServiceAccount", "Role", "RoleBinding") and one["metadata"]["namespace"] != GONE
    return is_own or (one["kind"].startswith("ClusterRole") and one["metadata"]["name"] == "merlot-uninstall")


def uninstall(account: Path, namespaces: str) -> subprocess.CompletedProcess[str]:
    """What the Job's container runs."""
    environment = {**os.environ, "KUBECONFIG": str(account), "MERLOT_NAMESPACE": namespaces}
    command = [sys.executable, "-m", "merlot_operator.uninstall"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_a_release_may_go_once_nothing_is_declared(account: Path, api: Api, operator: Operator) -> None:
    assert uninstall(account, api.namespace).returncode == 0
    with operator:
        api.create("tables", flights())
        api.create("mergerolluptasks", rollup())
        for plural, name in (("tables", "flights"), ("mergerolluptasks", "merge")):
            wait(operator, lambda one=plural, name=name: "finalizers" in api.get(one, name)["metadata"])
        done = uninstall(account, api.namespace)
        assert done.returncode == 1
        assert f"MergeRollupTask {api.namespace}/merge, Table {api.namespace}/flights" in done.stderr
        api.delete("mergerolluptasks", "merge")
        api.delete("tables", "flights")
        wait(operator, lambda: api.get("tables", "flights") or api.get("mergerolluptasks", "merge"), None)
    done = uninstall(account, api.namespace)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_may_not_look_does_not_say_that_nothing_is_there(account: Path, api: Api) -> None:
    done = uninstall(account, "kube-system")
    assert done.returncode == 1
    assert "forbidden" in done.stderr


def test_a_namespace_of_the_list_that_is_gone_holds_no_release(account: Path, api: Api, operator: Operator) -> None:
    assert uninstall(account, f"{GONE},{api.namespace}").returncode == 0
    with operator:
        api.create("tables", flights())
        wait(operator, lambda: "finalizers" in api.get("tables", "flights")["metadata"])
    done = uninstall(account, f"{GONE},{api.namespace}")
    assert (done.returncode, f"Table {api.namespace}/flights" in done.stderr) == (1, True)
