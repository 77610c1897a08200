"""Replace segments through a controller: start, publish the outputs, end or revert."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from merlot.cli.client import NodeClient, path_of
from merlot.cli.errors import ApiError, CommandError
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.rounding import smallest_window
from merlot.spec.shape import Shape

LOAD_TIMEOUT_S = 600.0
ROUTE_TIMEOUT_S = 30.0
"""Longest wait until brokers route queries to the outputs. A dead broker has left the cluster by then."""
ROUTE_POLL_S = 0.05
ROUTED = "Routed"
IN_PROGRESS, COMPLETED = "IN_PROGRESS", "COMPLETED"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Time window in epoch milliseconds, [start, end)."""

    start_ms: int
    end_ms: int

    def covers(self, record: SegmentRecord) -> bool:
        """Return True if all rows of a segment are in the window."""
        first, last = record.start_time_ms, record.end_time_ms
        return first is not None and last is not None and self.start_ms <= first and last < self.end_ms


@dataclass(frozen=True, slots=True)
class Replacer:
    """Client that replaces segments of one table."""

    client: NodeClient
    table: str

    def select(self, window: TimeWindow) -> list[SegmentRecord]:
        """Return the segments that may have rows in the window."""
        query = {"startTimestamp": str(window.start_ms), "endTimestamp": str(window.end_ms)}
        answer = self.client.get(path_of("segments", self.table, "select"), query)
        names = {name for group in answer for segments in group.values() for name in segments}
        if not names:
            return []
        statuses: dict[str, Any] = self.client.get(path_of("segments", self.table, "metadata"))
        return [SegmentRecord.model_validate(statuses[name]) for name in sorted(names & statuses.keys())]

    def smallest(self, window: TimeWindow) -> TimeWindow:
        """Return the window, widened so that it splits no period to which merges have rounded times."""
        statuses: dict[str, Any] = self.client.get(path_of("segments", self.table, "metadata"))
        visible = [SegmentRecord.model_validate(status) for status in statuses.values() if status.get("visible", True)]
        return TimeWindow(*smallest_window(visible, (window.start_ms, window.end_ms)))

    def states(self) -> Mapping[str, str]:
        """Return the state of every entry of the table's lineage, by its id."""
        entries = self.client.get(path_of("segments", self.table, "lineage")).get("lineageEntries", {})
        return {name: str(entry["state"]) for name, entry in entries.items()}

    def start(self, entry: str, family: str, inputs: Sequence[SegmentRecord], outputs: Sequence[SegmentRecord]) -> None:
        """Start an entry. Unfinished entries whose ids begin with `family` are reverted first: earlier runs of the same
        task have left them."""
        for other, state in self.states().items():
            if other.startswith(family) and state == IN_PROGRESS:
                self.revert(other)
        body = {
            "segmentsFrom": [record.name for record in inputs],
            "segmentCrcs": {record.name: record.crc for record in inputs},
            "segmentsTo": [record.name for record in outputs],
            "segmentLineageEntryId": entry,
            "customMap": {"reason": "backfill"},
        }
        self.client.post_json(path_of("segments", self.table, "startReplaceSegments"), body)

    def put(self, entry: str, outputs: Sequence[SegmentRecord], shape: Shape) -> None:
        """Publish the outputs, hidden until the entry ends.

        The controller refuses them if the entry is no longer in progress. If it reports shapes, it also refuses them if
        the table's shape differs from the one for which they were built."""
        records = [record.model_dump(mode="json", by_alias=True, exclude_defaults=True) for record in outputs]
        if records:
            body: dict[str, Any] = {"records": records, "segmentLineageEntryId": entry}
            if "shape" in self.client.get(path_of("tables", self.table, "manifest")):
                body["shape"] = dict(shape)
            self.client.post_json(path_of("segments", self.table, "publish"), body)

    def end(self, entry: str, on_wait: Callable[[str], None]) -> None:
        """Show the outputs in place of the inputs, as soon as servers have loaded them."""
        deadline = time.monotonic() + LOAD_TIMEOUT_S
        while True:
            try:
                self._post("endReplaceSegments", {"segmentLineageEntryId": entry, "timeoutSeconds": "2"})
                return
            except ApiError as error:
                if error.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                    raise
                on_wait(str(error))

    def wait_routed(self, entry: str, on_wait: Callable[[str], None]) -> list[str]:
        """Wait until brokers route queries to the outputs. Return the brokers that do not yet, if the deadline passes
        or the user interrupts the wait; the replacement is complete in any case."""
        deadline = time.monotonic() + ROUTE_TIMEOUT_S
        behind: list[str] = []
        with contextlib.suppress(KeyboardInterrupt):
            while (behind := self._behind(entry)) and time.monotonic() < deadline:
                on_wait(", ".join(behind))
                time.sleep(ROUTE_POLL_S)
        return behind

    def _behind(self, entry: str) -> list[str]:
        try:
            states = self.client.get(path_of("segments", self.table, "lineage", entry, "brokers"))["brokers"]
        except CommandError as error:
            return [f"all ({error})"]
        return sorted(broker for broker, state in states.items() if state != ROUTED)

    def revert(self, entry: str) -> None:
        """Show the inputs again."""
        self._post("revertReplaceSegments", {"segmentLineageEntryId": entry, "forceRevert": "true"})

    def revert_if_under_way(self, entry: str) -> bool:
        """Revert the entry if it is in progress. Return True if it is complete. Raise CommandError if the controller
        does not tell its state."""
        state = self.states().get(entry)
        if state == COMPLETED:
            return True
        if state == IN_PROGRESS:
            self.revert(entry)
        return False

    def _post(self, action: str, query: Mapping[str, str]) -> None:
        self.client.post(path_of("segments", self.table, action), b"{}", "application/json", query)


def check_window(window: TimeWindow) -> None:
    """Raise CommandError if the window is empty."""
    if window.start_ms >= window.end_ms:
        raise CommandError("--from must be before --to, which is not part of the window")
