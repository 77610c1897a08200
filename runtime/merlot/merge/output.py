"""Write ordered rows into output segments: even slices, built side by side, one column at a time."""

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from merlot.merge.columns import MergeColumn
from merlot.merge.plan import MergeCancelledError, MergePhase, MergePlan
from merlot.segment.build.builder import SegmentWriter
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.build.slices import even_slices
from merlot.segment.json_values import to_json
from merlot.spec.schema import FieldSpec

_UNFIT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class OrderedRows(Protocol):
    """Rows of an output in their order."""

    @property
    def num_rows(self) -> int: ...
    def column(self, field: FieldSpec) -> MergeColumn: ...


@dataclass(slots=True)
class ProgressWatch:
    """Progress that a merge reports to its caller, and the caller's wish to cancel."""

    progress: Callable[[MergePhase, int, int], None]
    cancelled: Callable[[], bool]
    rows: int = 0
    """Input rows that are finished."""
    bytes: int = 0
    """Bytes of finished outputs."""

    def tell(self, phase: MergePhase, rows: int | None = None) -> None:
        """Report progress; raise MergeCancelledError if the caller has cancelled."""
        self.progress(phase, self.rows if rows is None else rows, self.bytes)
        if self.cancelled():
            raise MergeCancelledError("merge was cancelled")


@dataclass(slots=True)
class Outputs:
    """Segments that one merge has written so far; numbers them."""

    plan: MergePlan
    directory: Path
    watch: ProgressWatch
    built: list[BuiltSegment] = field(default_factory=list)

    def write(self, rows: OrderedRows, input_rows: int) -> None:
        """Build segments of ordered rows, as equal in size as possible and no larger than the plan allows."""
        plan = self.plan
        slices = even_slices(rows.num_rows, plan.max_records_per_segment)
        names = self._names(rows, slices)
        with contextlib.ExitStack() as files:
            writers = []
            for name, part in zip(names, slices, strict=True):
                writer = SegmentWriter(self._request(name), part.stop - part.start, self.directory)
                writers.append(files.enter_context(writer))
            for number, column_field in enumerate(plan.schema.fields):
                done = input_rows * number // len(plan.schema.fields)
                self.watch.tell(MergePhase.WRITE, self.watch.rows + done)
                column = rows.column(column_field)
                for writer, part in zip(writers, slices, strict=True):
                    writer.add(column.take(part).for_build())
            for writer in writers:
                segment = writer.commit()
                self.built.append(segment)
                self.watch.bytes += segment.size_bytes
        self.watch.rows += input_rows
        self.watch.tell(MergePhase.WRITE)

    def discard(self) -> None:
        """Delete the segments built so far."""
        for segment in self.built:
            segment.path.unlink(missing_ok=True)

    def _request(self, name: str) -> BuildRequest:
        plan = self.plan
        return BuildRequest(
            name=name,
            table=plan.table,
            schema=plan.schema,
            indexing=plan.indexing,
            time_column=plan.time_column,
            partitioning=plan.partitioning,
            creation=plan.creation,
        )

    def _names(self, rows: OrderedRows, slices: Sequence[slice]) -> list[str]:
        """Return `{prefix}_{minTime}_{maxTime}_{number}`, or `{prefix}_{number}` without a time column."""
        first = len(self.built)
        plan = self.plan
        if plan.time_column is None:
            return [f"{plan.segment_name_prefix}_{first + number}" for number in range(len(slices))]
        time_field = plan.time_field()
        time = rows.column(time_field)
        bounds = [_bounds(time.take(part)) for part in slices]
        return [
            f"{plan.segment_name_prefix}_{low}_{high}_{first + number}" for number, (low, high) in enumerate(bounds)
        ]


def _bounds(time: MergeColumn) -> tuple[str, str]:
    """Return the least and greatest value as text for a file name."""
    if time.ids is not None:
        low, high = time.values[int(time.ids.min())], time.values[int(time.ids.max())]
    elif isinstance(time.values, np.ndarray):
        low, high = time.values.min(), time.values.max()
    else:
        texts = time.values.to_pylist()
        low, high = min(texts), max(texts)
    return _file_text(time.field, low), _file_text(time.field, high)


def _file_text(time_field: FieldSpec, value: object) -> str:
    plain = value.as_py() if hasattr(value, "as_py") else value
    return _UNFIT_FOR_A_NAME.sub("-", str(to_json(time_field.type, plain)))
