"""Many Tables: what they cost the operator in memory, and that it writes nothing while nothing happens."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count
from tests.kube.controllers import Controller
from tests.kube.operator_parts import Api, Operator, eventually, table_word
from tests.kube.test_operator import flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.measure,
    pytest.mark.slow("test_operator sees that a second pass writes nothing; this measures it with many tables"),
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

NUM_TABLES = count("MERLOT_TABLES", quick=40, every=200, fuzz=1000)
MOST_MB = 90 + 0.06 * NUM_TABLES
QUIET_S = 2.0
IDLE_S = 5.0
"""Some looks at the controller."""


@pytest.mark.timeout(600)
def test_idle_tables_cost_little_memory_and_no_writes(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path
) -> None:
    """Most share their servers; every tenth of as many has servers of its own."""
    tenants = {f"shared-{number:04}": "shared" for number in range(NUM_TABLES)}
    tenants |= {f"own-{number:04}": "default" for number in range(NUM_TABLES // 10)}
    controller.tables = {name: table_word() for name in tenants}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: api.create("tables", _table(name, tenants[name])), tenants))
    operator = Operator(settings, tmp_path / "operator.log", program="merlot_operator", is_fresh=True)
    with operator:
        started = time.monotonic()
        eventually(lambda: _num_with_status(api), len(tenants), log=lambda: operator.log, patience_s=300)
        ready_s = time.monotonic() - started
        _until_quiet(operator)
        writes, cpu_s = operator.metric("merlot_operator_writes"), operator.cpu_seconds()
        time.sleep(IDLE_S)
        idle_writes = operator.metric("merlot_operator_writes") - writes
        idle_cpu = (operator.cpu_seconds() - cpu_s) / IDLE_S
        rss = operator.rss_mb()
        print(
            f"\n{len(tenants)} tables: {rss:.0f} MB, statuses after {ready_s:.1f} s, {writes:.0f} writes, then "
            f"{idle_writes:.0f} writes and {idle_cpu:.1%} of a core while idle"
        )
        assert idle_writes == 0
        assert rss < MOST_MB


def _table(name: str, tenant: str) -> dict[str, Any]:
    return flights(name, tenants={"server": {"name": tenant, "replicas": 1}})


def _num_with_status(api: Api) -> int:
    return sum("conditions" in one.get("status", {}) for one in api.list("tables"))


def _until_quiet(operator: Operator) -> None:
    before: Any = None
    while (now := operator.metric("merlot_operator_writes")) != before:
        before = now
        time.sleep(QUIET_S)
