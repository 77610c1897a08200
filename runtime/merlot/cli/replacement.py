"""A replacement of segments by way of a controller: start, publish the outputs, end or revert."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from merlot.cli.client import Client, path_of
from merlot.cli.errors import ApiError, CommandError
from merlot.cluster.records import SegmentRecord

LOAD_TIMEOUT_S = 600.0
IN_PROGRESS, COMPLETED = "IN_PROGRESS", "COMPLETED"


@dataclass(frozen=True, slots=True)
class Window:
    """Epoch milliseconds, [start, end)."""

    start_ms: int
    end_ms: int

    def covers(self, record: SegmentRecord) -> bool:
        """Whether all rows of a segment are in it."""
        first, last = record.start_time_ms, record.end_time_ms
        return first is not None and last is not None and self.start_ms <= first and last < self.end_ms


@dataclass(frozen=True, slots=True)
class Replacer:
    """Replacements of one table's segments."""

    client: Client
    table: str

    def select(self, window: Window) -> list[SegmentRecord]:
        """Segments that may have rows in the window."""
        query = {"startTimestamp": str(window.start_ms), "endTimestamp": str(window.end_ms)}
        answer = self.client.get(path_of("segments", self.table, "select"), query)
        names = {name for group in answer for found in group.values() for name in found}
        if not names:
            return []
        statuses: dict[str, Any] = self.client.get(path_of("segments", self.table, "metadata"))
        return [SegmentRecord.model_validate(statuses[name]) for name in sorted(names & statuses.keys())]

    def state(self, entry: str) -> str | None:
        """State of an entry; None if there is none."""
        entries = self.client.get(path_of("segments", self.table, "lineage")).get("lineageEntries", {})
        found = entries.get(entry)
        return None if found is None else str(found["state"])

    def start(self, entry: str, inputs: Sequence[SegmentRecord], outputs: Sequence[SegmentRecord]) -> None:
        """Announce it. An entry of this id that was left under way is taken back first: its outputs may be others."""
        if self.state(entry) == IN_PROGRESS:
            self.revert(entry)
        body = {
            "segmentsFrom": [record.name for record in inputs],
            "segmentsTo": [record.name for record in outputs],
            "segmentLineageEntryId": entry,
            "customMap": {"reason": "backfill"},
        }
        self.client.post_json(path_of("segments", self.table, "startReplaceSegments"), body)

    def put(self, outputs: Sequence[SegmentRecord]) -> None:
        """Publish the outputs; as an entry names them, they are hidden until its end."""
        records = [record.model_dump(mode="json", by_alias=True, exclude_defaults=True) for record in outputs]
        if records:
            self.client.post_json(path_of("segments", self.table, "publish"), {"records": records})

    def end(self, entry: str, on_wait: Callable[[str], None]) -> None:
        """Show the outputs in place of the inputs, once servers have them."""
        deadline = time.monotonic() + LOAD_TIMEOUT_S
        while True:
            try:
                self._post("endReplaceSegments", {"segmentLineageEntryId": entry, "timeoutSeconds": "2"})
                return
            except ApiError as error:
                if error.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                    raise
                on_wait(str(error))

    def revert(self, entry: str) -> None:
        """Show the inputs again."""
        self._post("revertReplaceSegments", {"segmentLineageEntryId": entry, "forceRevert": "true"})

    def revert_if_under_way(self, entry: str) -> bool:
        """Take back what is not complete; returns whether the outputs answer. CommandError if nobody can tell."""
        state = self.state(entry)
        if state == COMPLETED:
            return True
        if state == IN_PROGRESS:
            self.revert(entry)
        return False

    def _post(self, action: str, query: Mapping[str, str]) -> None:
        self.client.post(path_of("segments", self.table, action), b"{}", "application/json", query)


def check_window(window: Window) -> None:
    """CommandError if there is no time in it."""
    if window.start_ms >= window.end_ms:
        raise CommandError("--from must be before --to, which is not part of the window")
