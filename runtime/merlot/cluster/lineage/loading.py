"""Check whether servers have loaded segments that are about to become visible, and wait until they have."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence

from merlot.cluster.instances import liveness
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.lineage.views import consistent
from merlot.cluster.records import LineageState, Role
from merlot.cluster.segments.lineage_nodes import dropped_outputs, read_details
from merlot.cluster.segments.view import TableView
from merlot.errors import NotFoundError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore

POLL_INTERVAL_S = 1.0
"""Longest time in seconds between two reads of the servers' reports, even if no watch fires."""


def not_loaded(
    metastore: Metastore, view: TableView, names: Collection[str], reader: ReportReader | None = None
) -> Mapping[str, str]:
    """Return the reasons why segments of `names` are not loaded, by name; a loaded segment has none.

    A segment is loaded if it has live servers and all of them report it. A segment without a record is not loaded."""
    reports = (reader or ReportReader(metastore, view.table)).read()
    live = liveness.live_instances(metastore, Role.SERVER)
    reasons = {}
    for name in names:
        record = view.segment(name)
        if record is None:
            reasons[name] = "not published"
            continue
        key = record.key_text
        servers = [server for server in view.servers_of(name) if server in live]
        missing_on = [server for server in servers if server not in reports or key not in reports[server].loaded]
        if not servers:
            reasons[name] = "assigned to no live server yet"
        elif missing_on:
            errors = [
                reports[server].errors[key]
                for server in missing_on
                if server in reports and key in reports[server].errors
            ]
            reasons[name] = f"not loaded by {missing_on[0]}" + (f": {errors[0]}" if errors else "")
    return reasons


def wait_until_loaded(
    metastore: Metastore, table: TableName, entry: str, segments_to: Sequence[str] | None, patience_s: float
) -> None:
    """Wait until the outputs of an entry IN_PROGRESS are loaded; return at once if it is in another state.

    `segments_to`: outputs to wait for; None means all. Raise UnavailableError if they are not loaded within
    `patience_s`, NotFoundError if the entry does not exist."""
    reader = ReportReader(metastore, table)
    changed = threading.Event()
    deadline = time.monotonic() + patience_s
    is_watching = False
    try:
        while True:
            changed.clear()
            missing = _outputs_not_loaded(metastore, table, entry, segments_to, reader)
            if not missing:
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                name, reason = next(iter(missing.items()))
                raise UnavailableError(
                    f"outputs are not loaded yet, end the replacement again later table={table} entry={entry} "
                    f"missing={len(missing)} first={name} reason: {reason}"
                )
            if not is_watching:
                reader.watch(changed.set)
                is_watching = True
                continue
            changed.wait(min(left_s, POLL_INTERVAL_S))
    finally:
        reader.close()


def _outputs_not_loaded(
    metastore: Metastore, table: TableName, entry: str, segments_to: Sequence[str] | None, reader: ReportReader
) -> Mapping[str, str]:
    def read(view: TableView) -> Mapping[str, str] | None:
        mark = view.lineage.get(entry)
        if mark is None:
            raise NotFoundError(f"replacement does not exist table={table} entry={entry}")
        if mark.state is not LineageState.IN_PROGRESS:
            return {}
        details = read_details(metastore, table, {entry: mark})[entry]
        if details is None:
            return None
        dropped = dropped_outputs(details, entry, segments_to)
        return not_loaded(metastore, view, [name for name in details.segments_to if name not in dropped], reader)

    return consistent(metastore, table, read)
