"""Which rows of the inputs each window takes, and that none is forgotten."""

from collections.abc import Sequence

from merlot.errors import InvalidInputError
from merlot.merge.output import Watch
from merlot.merge.plan import MergePlan, Phase
from merlot.merge.source import Selection, Source, num_rows


def select_windows(plan: MergePlan, source: Source, watch: Watch) -> list[Selection]:
    """Rows of each window that has some; raises InvalidInputError if rows are in none, unless the plan drops them."""
    watch.tell(Phase.READ)
    found: Sequence[Selection] = source.select(plan.windows) if plan.windows else [source.everything()]
    selected = sum(map(num_rows, found))
    total = num_rows(source.everything())
    if selected != total and not plan.drops_outside:
        raise InvalidInputError(
            f"rows of the inputs would be lost: their time is in no window table={plan.table} rows={total - selected}"
        )
    return [selection for selection in found if selection]
