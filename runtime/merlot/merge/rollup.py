"""Merge rows that agree in their key columns into one row: rollup folds their metrics, dedup keeps the first row.

If the rows do not fit into memory, the merge goes in steps: each run of input rows is folded into a small segment on
disk, with metrics wide enough for any part of a sum. Then these segments are folded together. If they are still too
large, they are first split by a hash of the key, so that equal keys always meet.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from merlot.aggregates.sketches import SketchError
from merlot.errors import UnavailableError
from merlot.merge import folds, hashing, memory
from merlot.merge.columns import MergeColumn
from merlot.merge.order import key_codes, order_of, with_one_zero
from merlot.merge.output import OrderedRows, Outputs
from merlot.merge.plan import MergePhase, MergePlan
from merlot.merge.source import (
    MergeSource,
    Selection,
    num_rows,
    open_source,
    slice_selection,
    split_selection,
    sub_selection,
)
from merlot.segment.build.request import BuiltSegment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName
from merlot.vectors.groups import Groups, KeyWords, group

_WHOLE_64_BITS = 1 << 63


class Folded(OrderedRows):
    """Groups of selected rows, ordered by the table's sorted columns, then by the others."""

    def __init__(self, plan: MergePlan, target: TableSchema, source: MergeSource, selection: Selection) -> None:
        self._plan = plan
        self._target = target
        self._source = source
        self._selection = selection
        keys = KeyWords(num_rows(selection))
        for field in plan.key_fields():
            keys.add(*key_codes(source.column(field, selection)))
        self._groups = self._nulls_apart(keys, group(keys))
        self._firsts = sub_selection(selection, self._groups.first_rows)
        self._order = order_of(keys.take(self._groups.first_rows))

    def _nulls_apart(self, keys: KeyWords, groups: Groups) -> Groups:
        """Split the nulls off each group whose minimum is above the metric's default, or whose maximum is below it.

        A query may count nulls as the default, and would lose it in the folded row. With the nulls in a row of their
        own, answers stay the same, whether nulls count or not."""
        is_parted = False
        for field in self._plan.schema.fields:
            how = folds.aggregation_of(self._plan, field)
            if not (self._plan.folds(field) and folds.is_extreme(how)):
                continue
            nulls = self._source.nulls(field, self._selection)
            if nulls is not None:
                folded = folds.fold(self._source.column(field, self._selection), field, how, groups)
                apart = nulls & folds.beaten_by_default(folded, how)[groups.of_rows]
                if apart.any():
                    keys.add(apart.astype(np.uint8), 2)
                    is_parted = True
        return group(keys) if is_parted else groups

    @property
    def num_rows(self) -> int:
        return len(self._groups)

    def column(self, field: FieldSpec) -> MergeColumn:
        """Return a column of one row per group."""
        read = self._plan.schema.field(field.name)
        assert read is not None
        if self._plan.folds(read):
            values = self._source.column(read, self._selection)
            try:
                column = folds.fold(values, field, folds.aggregation_of(self._plan, field), self._groups)
            except SketchError as error:
                raise error.found_in(segment=_segment_of(self._selection, error.row)) from None
        else:
            column = with_one_zero(self._source.column(read, self._firsts))
        return column if self._order is None else column.take(self._order)


def fold_rows(plan: MergePlan, source: MergeSource, selection: Selection, outputs: Outputs, memory_bytes: int) -> None:
    """Write the groups of selected rows to the outputs."""
    rows = num_rows(selection)
    room = memory.rows_that_fit(plan, selection, memory_bytes)
    if rows <= room:
        outputs.watch.tell(MergePhase.ORDER)
        outputs.write(Folded(plan, plan.schema, source, selection), rows)
        return
    with _spill_directory(outputs.directory) as directory:
        runs, wide = _fold_runs(plan, source, selection, _Spill(directory, outputs, room))
        with open_source(wide, [run.path for run in runs]) as again:
            for part in _parts_by_key(wide, again, memory_bytes):
                outputs.watch.tell(MergePhase.ORDER)
                outputs.write(Folded(wide, plan.schema, again, part), 0)
                memory.release()


def _segment_of(selection: Selection, row: int) -> str:
    """Return the name of the input segment of a row."""
    for part in selection:
        if row < part.num_rows:
            return part.segment.metadata.name
        row -= part.num_rows
    raise IndexError(row)


class _Spill:
    """Directory of spilled runs, number of rows per run (`room`), and the outputs whose progress they report."""

    def __init__(self, directory: Path, outputs: Outputs, room: int) -> None:
        self.directory = directory
        self.outputs = outputs
        self.room = room


def _fold_runs(
    plan: MergePlan, source: MergeSource, selection: Selection, spill: _Spill
) -> tuple[list[BuiltSegment], MergePlan]:
    """Fold each run of `room` rows into a segment on disk; return the segments and the plan that reads them."""
    wide = _widened(plan, selection)
    watch = spill.outputs.watch
    runs = Outputs(_for_spill(wide), spill.directory, watch)
    before = watch.bytes
    for start in range(0, num_rows(selection), spill.room):
        watch.tell(MergePhase.ORDER)
        run = slice_selection(selection, start, min(start + spill.room, num_rows(selection)))
        runs.write(Folded(plan, wide.schema, source, run), num_rows(run))
        memory.release()
    watch.bytes = before
    return runs.built, wide


def _parts_by_key(plan: MergePlan, source: MergeSource, memory_bytes: int) -> Iterator[Selection]:
    """Split all rows of the source into parts that fit into memory and share no key."""
    selection = source.everything()
    rows = num_rows(selection)
    number = -(-rows // memory.rows_that_fit(plan, selection, memory_bytes))
    if number <= 1:
        yield selection
        return
    # Shuffling uses the remainder of the hash; its upper half is independent of that.
    parts = [
        (hashing.key_hashes(plan, source, [part]) >> np.uint64(32)).astype(np.uint32) % np.uint32(number)
        for part in selection
    ]
    yield from split_selection(selection, parts, number)


def _widened(plan: MergePlan, selection: Selection) -> MergePlan:
    """Return the plan for folded runs: sums whose parts might not fit get a wider type."""
    fields = []
    for field in plan.schema.fields:
        how = folds.aggregation_of(plan, field)
        if plan.folds(field) and folds.is_sum(how):
            fields.append(FieldSpec.model_validate({**field.model_dump(), "type": _sum_type(field, selection)}))
        else:
            fields.append(field)
    return dataclasses.replace(plan, schema=TableSchema(fields=tuple(fields)))


def _sum_type(field: FieldSpec, selection: Selection) -> TypeName:
    if field.type is TypeName.FLOAT:
        return TypeName.DOUBLE
    if field.type not in (TypeName.INT, TypeName.LONG):
        return field.type
    largest = 0
    for part in selection:
        stored = part.segment.metadata.columns.get(field.name)
        bounds = (field.default_value,) if stored is None else (stored.min, stored.max)
        largest = max(largest, *(abs(bound) if isinstance(bound, int) else _WHOLE_64_BITS for bound in bounds))
    return TypeName.LONG if largest * num_rows(selection) < _WHOLE_64_BITS else TypeName.BIG_DECIMAL


def _for_spill(plan: MergePlan) -> MergePlan:
    return dataclasses.replace(plan, indexing=IndexingSpec(), partitioning=None, max_records_per_segment=1 << 32)


@contextmanager
def _spill_directory(directory: Path) -> Iterator[Path]:
    path = directory / f".spill.{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        raise UnavailableError(f"cannot spill path={path}: {error.strerror}") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
