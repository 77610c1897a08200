"""A table of segments with their rows in memory, and a minion that does a merge task perfectly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.time_formats import read_time, rounded_time, stored_time

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.rounding import with_true_times
from merlot.cluster.tasks.queue import TaskRecord, merge_config
from merlot.controller.merges.generator import Generated, MergeSituation, generate
from merlot.ids import TableName
from merlot.spec import time_rounding
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.tasks import MergeRollupSpec
from merlot.values import periods
from merlot.values.types import TypeName

Row = tuple[int, int]
"""Time and number of a row."""

TABLE = TableName("trips_OFFLINE")
TIMESTAMP = FieldSpec(name="at", type=TypeName.TIMESTAMP, role=FieldRole.DATE_TIME)
HOUR = 3_600_000
DAY = 24 * HOUR


def spec_of(*levels: Mapping[str, object], **more: object) -> MergeRollupSpec:
    """A manifest's spec, as YAML would give it."""
    return MergeRollupSpec.model_validate({"table": "trips", "levels": levels, **more})


def level(name: str, bucket: str, buffer: str = "0d", **more: object) -> Mapping[str, object]:
    """A level, as YAML would give it."""
    return {"name": name, "bucketTimePeriod": bucket, "bufferTimePeriod": buffer, **more}


@dataclass
class MergeTable:
    """Segments by name, and the watermarks."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    records: dict[str, SegmentRecord] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    time: FieldSpec = TIMESTAMP
    """The time column; it tells what becomes of an instant."""
    added: dict[int, int] = field(default_factory=dict)
    """The time of each row as it came, by number."""
    num_rows: int = 0
    num_names: int = 0

    def add(self, times: Iterable[int], *, custom_map: Mapping[str, str] | None = None, name: str = "") -> str:
        """A segment with a row at each time."""
        held = [read_time(self.time, stored_time(self.time, time)) for time in times]
        rows = [(time, self.num_rows + number) for number, time in enumerate(held)]
        self.added |= {number: time for time, number in rows}
        self.num_rows += len(rows)
        self.num_names += 1
        return self.put(name or f"s{self.num_names}", rows, custom_map or {})

    def put(self, name: str, rows: list[Row], custom_map: Mapping[str, str]) -> str:
        assert name not in self.records
        self.rows[name] = rows
        self.records[name] = SegmentRecord(
            name=name,
            crc=len(rows),
            size_bytes=10 * len(rows),
            url="",
            total_docs=len(rows),
            start_time_ms=min((time for time, _ in rows), default=None),
            end_time_ms=max((time for time, _ in rows), default=None),
            custom_map=dict(custom_map),
        )
        return name

    def drop(self, name: str) -> list[Row]:
        del self.records[name]
        return self.rows.pop(name)

    def situation(self, spec: MergeRollupSpec, now_ms: int, **more: object) -> MergeSituation:
        return MergeSituation(
            rollup="trips-merge",
            revision=1,
            table=TABLE,
            spec=spec,
            visible=self.records,
            watermarks=self.watermarks,
            now_ms=now_ms,
            **more,  # type: ignore[arg-type]
        )

    def generate(self, spec: MergeRollupSpec, now_ms: int, **more: object) -> Generated:
        """A pass; the watermarks are kept as they are written with the tasks."""
        generated = generate(self.situation(spec, now_ms, **more))
        if generated.tasks:
            self.watermarks = generated.watermarks
        else:
            assert generated.watermarks == self.watermarks
        return generated

    def run(self, task: TaskRecord) -> None:
        """Replace the inputs by the outputs; every row must have a place."""
        config = merge_config(task)
        names = [key.rpartition("@")[0] for key in config.inputs]
        assert len(set(names)) == len(names)
        inputs = [self.records[name] for name in names]
        rows = [row for name in names for row in self.drop(name)]
        placed = 0
        for windows, prefix, custom_map, rounding in (
            (config.windows, config.output_prefix, config.custom_map, config.round_period),
            (config.rest, config.rest_prefix, config.rest_custom_map, None),
        ):
            moving = rounding if rounding and time_rounding.is_moving(self.time, periods.parse(rounding)) else None
            for start_ms, end_ms in windows:
                inside = [row for row in rows if start_ms <= row[0] < end_ms]
                placed += len(inside)
                inside = [(self._rounded(time, rounding), number) for time, number in inside]
                for name in self._write(f"{prefix}_{start_ms}", inside, config.max_records_per_segment, custom_map):
                    self.records[name] = with_true_times(self.records[name], inputs, windows, moving)
        assert placed == len(rows), "rows outside all windows, or in two"

    def run_to_the_end(self, spec: MergeRollupSpec, now_ms: int, *, most_passes: int = 10_000) -> list[TaskRecord]:
        """Passes, each with all of its tasks, until nothing is left to do."""
        done: list[TaskRecord] = []
        for _ in range(most_passes):
            tasks = self.generate(spec, now_ms).tasks
            if not tasks:
                return done
            inputs = [key for task in tasks for key in merge_config(task).inputs]
            assert len(set(inputs)) == len(inputs), "two tasks of a pass read one segment"
            for task in tasks:
                self.run(task)
            done += tasks
        raise AssertionError("merges never come to an end")

    def all_rows(self) -> list[Row]:
        return sorted(row for rows in self.rows.values() for row in rows)

    def _rounded(self, time: int, rounding: str | None) -> int:
        if rounding is None:
            return time
        return read_time(self.time, rounded_time(self.time, stored_time(self.time, time), periods.parse(rounding)))

    def _write(self, prefix: str, rows: Sequence[Row], most: int, custom_map: Mapping[str, str]) -> list[str]:
        ordered = sorted(rows)
        names = []
        for start in range(0, len(ordered), most):
            self.num_names += 1
            names.append(self.put(f"{prefix}_{self.num_names}", list(ordered[start : start + most]), custom_map))
        return names
