"""`kubectl merlot plan` against an API server: the server's own defaults and rules decide, nothing is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from operator_parts import Api, write_kubeconfig
from test_operator import flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]


@pytest.fixture
def merlot(api: Api, tmp_path: Path) -> Any:
    """Runs `kubectl merlot …` in the test's namespace."""
    assets = os.environ["KUBEBUILDER_ASSETS"]
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, api.token)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{assets}:{os.environ['PATH']}"}

    def run(command: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "merlot_operator.plugin.main", command, f"--namespace={api.namespace}"]
        return subprocess.run(
            [*program, *arguments], env=environment, input=text, capture_output=True, text=True, timeout=60, check=False
        )

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
