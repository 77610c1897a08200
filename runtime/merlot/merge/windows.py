"""Select the rows of the inputs that each window takes, and check that no row is lost."""

from collections.abc import Sequence

from merlot.errors import InvalidInputError
from merlot.merge.output import ProgressWatch
from merlot.merge.plan import MergePhase, MergePlan
from merlot.merge.source import MergeSource, Selection, num_rows


def select_windows(plan: MergePlan, source: MergeSource, watch: ProgressWatch) -> list[Selection]:
    """Return the rows of each window that has some. Raises InvalidInputError if rows are in no window, unless the plan
    drops them."""
    watch.tell(MergePhase.READ)
    selections: Sequence[Selection] = source.select(plan.windows) if plan.windows else [source.everything()]
    selected = sum(map(num_rows, selections))
    total = num_rows(source.everything())
    if selected != total and not plan.drops_outside:
        raise InvalidInputError(
            f"rows of the inputs would be lost: their time is in no window table={plan.table} rows={total - selected}"
        )
    return [selection for selection in selections if selection]
