"""Run one merge, from input files to output files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from merlot.errors import InvalidInputError
from merlot.merge import folds
from merlot.merge.columns import MergeColumn
from merlot.merge.columns import Rows as RowNumbers
from merlot.merge.memory import release, rows_that_fit
from merlot.merge.order import order_codes, order_of
from merlot.merge.output import OrderedRows, Outputs, ProgressWatch
from merlot.merge.partitions import split
from merlot.merge.plan import MergeMode, MergePhase, MergePlan
from merlot.merge.rollup import fold_rows
from merlot.merge.source import MergeSource, Selection, num_rows, open_source, slice_selection
from merlot.merge.windows import select_windows
from merlot.segment.build.request import BuiltSegment
from merlot.segment.build.slices import even_slices
from merlot.spec.schema import FieldSpec
from merlot.vectors.groups import KeyWords


def run(
    plan: MergePlan,
    inputs: Sequence[Path],
    directory: Path,
    progress: Callable[[MergePhase, int, int], None],
    cancelled: Callable[[], bool],
    memory_bytes: int,
) -> list[BuiltSegment]:
    """Build the outputs of a merge in `directory`, which exists; a failure leaves no output behind.

    progress: called with the phase, the finished input rows and the bytes written. Both callables are called on this
    thread, at least once per column. Equal inputs, plans and `memory_bytes` give equal content CRCs. Raises
    InvalidInputError if the rows cannot be merged as planned, MergeCancelledError, CorruptionError of an input,
    UnavailableError if a file cannot be read or written."""
    plan.check()
    folds.check(plan)
    watch = ProgressWatch(progress, cancelled)
    outputs = Outputs(plan, directory, watch)
    try:
        with open_source(plan, inputs) as source:
            for selection in select_windows(plan, source, watch):
                for part in split(plan, source, selection):
                    _merge(plan, source, part, outputs, memory_bytes)
    except BaseException:
        outputs.discard()
        raise
    return outputs.built


def _merge(plan: MergePlan, source: MergeSource, selection: Selection, outputs: Outputs, memory_bytes: int) -> None:
    if plan.merge_type is not MergeMode.CONCAT:
        fold_rows(plan, source, selection, outputs, memory_bytes)
        return
    rows = num_rows(selection)
    room = rows_that_fit(plan, selection, memory_bytes)
    slices = even_slices(rows, min(plan.max_records_per_segment, room))
    # Batches of as many whole outputs as fit into memory.
    batches = even_slices(len(slices), max(1, room // (slices[0].stop - slices[0].start)))
    for batch in batches:
        outputs.watch.tell(MergePhase.ORDER)
        part = slice_selection(selection, slices[batch.start].start, slices[batch.stop - 1].stop)
        outputs.write(_Concatenated(plan, source, part), num_rows(part))
        if len(batches) > 1:
            release()


class _Concatenated(OrderedRows):
    """Selected rows in the order of the table's sorted columns; equal rows keep their order."""

    def __init__(self, plan: MergePlan, source: MergeSource, selection: Selection) -> None:
        self._source = source
        self._selection = selection
        self._order = _order(plan, source, selection)

    @property
    def num_rows(self) -> int:
        return num_rows(self._selection)

    def column(self, field: FieldSpec) -> MergeColumn:
        column = self._source.column(field, self._selection)
        return column if self._order is None else column.take(self._order)


def _order(plan: MergePlan, source: MergeSource, selection: Selection) -> RowNumbers | None:
    keys = KeyWords(num_rows(selection))
    for name in plan.indexing.sorted_columns:
        field = plan.schema.field(name)
        if field is None or field.multi_value:
            raise InvalidInputError(f"rows cannot be sorted by this column table={plan.table} column={name}")
        keys.add(*order_codes(source.column(field, selection)))
    return order_of(keys)
