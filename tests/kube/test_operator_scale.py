"""Many Tables: what they cost the operator in memory, and that it writes nothing while nothing happens."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from operator_parts import Api, Controller, Operator, eventually, table_word
from test_operator import flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.measure,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

NUM_TABLES = int(os.environ.get("MERLOT_TABLES", "200"))
"""1000 tell more, and take two minutes longer."""
MOST_MB = 90 + 0.06 * NUM_TABLES
QUIET_S = 2.0
IDLE_S = 5.0
"""Some looks at the controller."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("num_tables", "tenant"), [(NUM_TABLES, "shared"), (NUM_TABLES // 10, "default")], ids=["shared", "own"]
)
def test_idle_tables_cost_little_memory_and_no_writes(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path, num_tables: int, tenant: str
) -> None:
    names = [f"table-{number:04}" for number in range(num_tables)]
    controller.tables = {name: table_word() for name in names}
    tenants = {"tenants": {"server": {"name": tenant, "replicas": 1}}}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: api.create("tables", flights(name, **tenants)), names))
    operator = Operator(settings, tmp_path / "operator.log", program="merlot_operator", is_fresh=True)
    with operator:
        started = time.monotonic()
        eventually(lambda: _num_with_status(api), num_tables, log=lambda: operator.log, patience_s=300)
        ready_s = time.monotonic() - started
        _until_quiet(operator)
        writes, cpu_s = operator.metric("merlot_operator_writes"), operator.cpu_seconds()
        time.sleep(IDLE_S)
        idle_writes = operator.metric("merlot_operator_writes") - writes
        idle_cpu = (operator.cpu_seconds() - cpu_s) / IDLE_S
        rss = operator.rss_mb()
        print(
            f"\n{num_tables} tables, tenant {tenant}: {rss:.0f} MB, statuses after {ready_s:.1f} s, {writes:.0f} "
            f"writes, then {idle_writes:.0f} writes and {idle_cpu:.1%} of a core while idle"
        )
        assert idle_writes == 0
        assert rss < MOST_MB


def _num_with_status(api: Api) -> int:
    return sum("conditions" in one.get("status", {}) for one in api.list("tables"))


def _until_quiet(operator: Operator) -> None:
    before: Any = None
    while (now := operator.metric("merlot_operator_writes")) != before:
        before = now
        time.sleep(QUIET_S)
