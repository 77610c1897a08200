"""A cluster of processes with two replicas of `orders`, and the answers that are right."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.budget import count
from tests.support.processes import ClusterProcesses
from tests.support.sample import ORDERS, order_rows, orders_manifest, upload_orders

from merlot_spark.zookeeper import ZooKeeper

DAYS = range(8)
UPSERT_FAULTS = "upsert faults"
"""Property of tests: how often a process was killed, stopped or frozen, or lost its disk, beside an upsert table whose
answers were looked at."""
LEAST_FAULTS = count("MERLOT_LEAST_FAULTS", quick=0, every=0, fuzz=200)
"""A run that has met fewer fails."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whether upsert tables have met enough faults."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.exitstatus == pytest.ExitCode.OK and faults(reporter).total() < LEAST_FAULTS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many faults upsert tables have met in this run."""
    by_file = faults(terminalreporter)
    if (total := by_file.total()) or LEAST_FAULTS:
        parts = ", ".join(f"{count} in {file}" for file, count in by_file.items() if count)
        wanted = f" of {LEAST_FAULTS} at least" if LEAST_FAULTS else ""
        terminalreporter.write_line(f"real faults beside upsert tables: {total}{wanted} ({parts})")


def faults(reporter: pytest.TerminalReporter) -> Counter[str]:
    """Of upsert tables, by file."""
    by_file: Counter[str] = Counter()
    for report in (*reporter.stats.get("passed", ()), *reporter.stats.get("failed", ())):
        by_file[report.nodeid.partition("::")[0]] += dict(report.user_properties).get(UPSERT_FAULTS, 0)
    return by_file


@pytest.fixture
def met_faults(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Take note of so many faults of a test with an upsert table. `record_property` fails beside a JUnit report."""
    return lambda number: request.node.user_properties.append((UPSERT_FAULTS, number))


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, shared_zookeeper: ZooKeeper) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("cluster")
    with ClusterProcesses(folder, f"{shared_zookeeper.hosts}/faults-{os.getpid()}") as cluster:
        cluster.add_table(orders_manifest(replication=2), upload_orders(cluster.deep_store, DAYS))
        yield cluster


@pytest.fixture
def cluster(shared_cluster: ClusterProcesses) -> ClusterProcesses:
    """Two servers that both hold the eight segments of `orders`, mended after what the test before did to them."""
    shared_cluster.mend(ORDERS, len(DAYS) * 100)
    return shared_cluster


@pytest.fixture(scope="session")
def cases() -> Mapping[str, list[list[Any]]]:
    """Queries and their rows."""
    rows = [row for day in DAYS for row in order_rows(day).to_pylist()]
    by_city: Counter[str] = Counter()
    for row in rows:
        by_city[row["city"]] += row["amount"]
    rome = [row for row in rows if row["city"] == "Rome"]
    large = sorted((row["id"] for row in rows if row["amount"] > 900), reverse=True)
    return {
        "SELECT count(*), sum(amount) FROM orders": [[len(rows), float(sum(row["amount"] for row in rows))]],
        "SELECT city, sum(amount) FROM orders GROUP BY city ORDER BY city LIMIT 100": [
            [city, float(amount)] for city, amount in sorted(by_city.items())
        ],
        "SELECT count(*), max(id) FROM orders WHERE city = 'Rome'": [
            [len(rome), float(max(row["id"] for row in rome))]
        ],
        "SELECT id FROM orders WHERE amount > 900 ORDER BY id DESC LIMIT 20": [[id_] for id_ in large[:20]],
    }
