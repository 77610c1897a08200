"""The chart's Job that refuses to take the operator away from what needs it, with the chart's rights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.kube.operator_parts import PATIENCE_S, Api, write_kubeconfig
from tests.kube.sharing import SharedOperator
from tests.kube.test_chart import STORE, documents, render
from tests.kube.test_operator import flights, wait
from tests.kube.test_operator_rollups import rollup
from tests.support.fork_server import Child

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


GONE = "was-deleted"


@pytest.fixture
def account(helm: Path, api: Api, tmp_path: Path) -> Path:
    """A kubeconfig of the operator's account, with the chart's rights in the namespace and those that the Job brings;
    GONE is on the list of namespaces, and is not there."""
    values = {**STORE, "scope": {"namespaces": [api.namespace, GONE]}}
    done = render(helm, values, f"--namespace={api.namespace}")
    rights = [one for one in documents(done.stdout) if _is_right(one)]
    api.apply(rights)
    return write_kubeconfig(tmp_path / "account", api.url, api.account_token("merlot-operator"))


def _is_right(one: dict[str, Any]) -> bool:
    is_own = one["kind"] in ("ServiceAccount", "Role", "RoleBinding") and one["metadata"]["namespace"] != GONE
    return is_own or (one["kind"].startswith("ClusterRole") and one["metadata"]["name"] == "merlot-uninstall")


def uninstall(account: Path, namespaces: str, **more: str) -> tuple[int, str]:
    """What the Job's container runs: its exit code, and what it says."""
    environment = {**os.environ, "KUBECONFIG": str(account), "MERLOT_NAMESPACE": namespaces, **more}
    log = account.with_suffix(".log")
    log.write_text("")
    code = Child("merlot_operator.uninstall", (), log, environment=environment).wait(PATIENCE_S)
    return code, log.read_text()


def test_a_release_may_go_once_nothing_is_declared(account: Path, api: Api, running: SharedOperator) -> None:
    assert uninstall(account, api.namespace) == (0, "")
    api.create("tables", flights())
    api.create("mergerolluptasks", rollup())
    for plural, name in (("tables", "flights"), ("mergerolluptasks", "merge")):
        wait(running, lambda one=plural, name=name: "finalizers" in api.get(one, name)["metadata"])
    code, said = uninstall(account, api.namespace)
    assert code == 1
    assert f"MergeRollupTask {api.namespace}/merge, Table {api.namespace}/flights" in said
    api.delete("mergerolluptasks", "merge")
    api.delete("tables", "flights")
    wait(running, lambda: api.get("tables", "flights") or api.get("mergerolluptasks", "merge"), None)
    assert uninstall(account, api.namespace) == (0, "")


def test_who_may_not_look_does_not_say_that_nothing_is_there(account: Path, api: Api) -> None:
    code, said = uninstall(account, "kube-system")
    assert code == 1
    assert "forbidden" in said


def test_a_namespace_of_the_list_that_is_gone_holds_no_release(
    account: Path, api: Api, running: SharedOperator
) -> None:
    assert uninstall(account, f"{GONE},{api.namespace}") == (0, "")
    api.create("tables", flights())
    wait(running, lambda: "finalizers" in api.get("tables", "flights")["metadata"])
    code, said = uninstall(account, f"{GONE},{api.namespace}")
    assert (code, f"Table {api.namespace}/flights" in said) == (1, True)


def test_what_another_release_serves_holds_no_release(account: Path, api: Api, running: SharedOperator) -> None:
    api.create("tables", flights())
    wait(running, lambda: "finalizers" in api.get("tables", "flights")["metadata"])
    assert uninstall(account, api.namespace, MERLOT_RELEASE="team/twin") == (0, "")
    assert uninstall(account, api.namespace, MERLOT_RELEASE="merlot")[0] == 1
    assert uninstall(account, api.namespace)[0] == 1, "an older chart does not say which release it is"
