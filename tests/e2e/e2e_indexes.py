"""Indexes of the flights that a manifest adds while they are served, and which of them a query takes."""

import copy
import re

from tests.e2e.e2e_cluster import Cluster, Json

MONTH = "month = 3"
"""Of one segment: where one stands for many, it has no files to look into."""
BY_FLIGHT = f"SELECT COUNT(*) FROM flights WHERE flight = 1545 AND {MONTH}"
BY_CARRIER = f"SELECT carrier, SUM(distance) FROM flights WHERE {MONTH} GROUP BY carrier"
TREE: Json = {
    "dimensionsSplitOrder": ["month", "carrier"],
    "functionColumnPairs": ["SUM__distance"],
    "maxLeafRecords": 10,
}


def indexed(flights: Json, **indexing: object) -> Json:
    """The manifest with other indexes."""
    changed = copy.deepcopy(flights)
    changed["spec"]["indexing"] |= indexing
    return changed


def plan(cluster: Cluster, sql: str) -> str:
    """What EXPLAIN says, a line per operator."""
    return "\n".join(str(row[0]) for row in cluster.ask(f"EXPLAIN PLAN FOR {sql}"))


def added(cluster: Cluster, document: Json, timeout_s: float) -> list[str]:
    """Apply it, and wait until every server has what it names; what `kubectl get tables` told of it meanwhile."""
    told: list[str] = []

    def look() -> None:
        shown = column(cluster.kubectl("get", "tables", document["metadata"]["name"], "-o", "wide"), "INDEXES")
        if shown and told[-1:] != [shown]:
            told.append(shown)

    def is_built() -> bool:
        look()
        return cluster.holds("table", document["metadata"]["name"], "ConfigInSync")

    cluster.apply(document)
    cluster.await_true("every server has the indexes", is_built, timeout_s)
    look()
    return told


def column(listing: str, name: str) -> str:
    """Of the first object that kubectl lists, where other columns may be empty."""
    header, row = listing.splitlines()[:2]
    start = re.search(rf"(?<!\S){name}(?!\S) *", header)
    assert start is not None, header
    return row[start.start() : start.end()].strip()


def counts(told: str) -> tuple[int, int]:
    """Segments that have their indexes, and that shall."""
    built, _, wanted = told.partition("/")
    return int(built), int(wanted)
