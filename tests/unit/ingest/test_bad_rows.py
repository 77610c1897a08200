"""Bad rows are summed by their reasons, in bounds where nothing else ends them."""

from merlot.ingest.bad_rows import KEPT_REASONS, OTHER_REASONS, STATUS_REASONS, BadRow, BadRows


def numbered(first: int, last: int) -> BadRows:
    """A row of each reason, the first of them once more for each that follows."""
    counts = {f"unknown schema number={number}": last - number for number in range(first, last)}
    samples = tuple(BadRow(reason, file="t#0", row_number=place + 1) for place, reason in enumerate(counts))
    return BadRows(counts, samples[:20])


def test_a_sum_without_end_keeps_the_most_frequent_reasons_and_every_count() -> None:
    total, count = BadRows(), 0
    for first in range(0, 3 * KEPT_REASONS, 7):
        more = numbered(first, first + 20)
        total, count = (total + more).bounded(), count + more.count
    assert len(total.by_reason) <= KEPT_REASONS
    assert total.count == count
    assert total.by_reason[OTHER_REASONS] > 0
    assert {one.reason for one in total.samples} <= total.by_reason.keys()


def test_a_status_names_the_most_frequent_reasons_and_how_many_there_are_besides() -> None:
    lines = numbered(0, STATUS_REASONS + 5).to_status()
    assert lines[1] == f"  {STATUS_REASONS + 5} × unknown schema number=0"
    assert lines[2] == "      t#0 row 1: {}"
    assert lines[-1] == "  and 5 other reasons"
    assert len(lines) <= 2 + 2 * STATUS_REASONS
    assert BadRows().to_status() == ()
