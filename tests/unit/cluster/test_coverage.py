"""A publish takes no row of a table that it does not hold, unless it says so; decided where the table is written."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.cluster import paths
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments import coverage
from merlot.cluster.segments.coverage import RowCounts, UncoveredError
from merlot.cluster.segments.publish import PublishRequest, PublishResult, publish_request
from merlot.cluster.segments.view import load
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.tasks import MERGE_LEVEL

TABLE = TableName("t_OFFLINE")
HOUR_MS = 3_600_000
FOLDER = "s3://lake/trips"


@pytest.fixture
def table(store: SqliteMetastore) -> SqliteMetastore:
    store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
    return store


def segment(
    name: str = "day", crc: int = 1, *, rows: int = 12, hours: tuple[int, int] | None = (0, 23), source: str = FOLDER
) -> SegmentRecord:
    times = {} if hours is None else {"start_time_ms": hours[0] * HOUR_MS, "end_time_ms": hours[1] * HOUR_MS}
    url = f"file:///d/{name}@{crc}"
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=url, total_docs=rows, source=source, **times)


def push(
    store: SqliteMetastore,
    *records: SegmentRecord,
    replace: Sequence[str] = (),
    replace_all: bool = False,
    replace_rows: bool = False,
) -> PublishResult:
    request = PublishRequest(
        records=records, replace=tuple(replace), replace_all=replace_all, replace_rows=replace_rows
    )
    return publish_request(store, TABLE, request)


def held(store: SqliteMetastore) -> dict[str, int]:
    """Crc by name of what queries see."""
    return {name: record.crc for name, record in load(store, TABLE).visible.items()}


def test_an_afternoon_does_not_take_the_place_of_the_morning_unless_it_is_told_to(table: SqliteMetastore) -> None:
    push(table, segment(crc=1, hours=(0, 11), source="am.parquet"))
    afternoon = segment(crc=2, hours=(12, 23), source="pm.parquet")
    with pytest.raises(UncoveredError) as refused:
        push(table, afternoon, segment("another"))
    assert str(refused.value).startswith(
        "the batch would replace rows that it may not hold segments=1: day: 12 rows, 1970-01-01 to "
        "1970-01-01T11:00:00Z, of am.parquet -> 12 rows, 1970-01-01T12:00:00Z to 1970-01-01T23:00:00Z, of pm.parquet"
    )
    assert "--replace-rows" in str(refused.value)
    assert held(table) == {"day": 1}, "nothing of the request"
    result = push(table, afternoon, replace_rows=True)
    assert (result.published, result.replaced) == (("day",), ("day",))


def test_days_of_another_zone_lose_no_hours_at_their_borders(table: SqliteMetastore) -> None:
    push(table, segment("d1", rows=19, hours=(5, 23), source="d1"), segment("d2", rows=5, hours=(24, 28), source="d1"))
    with pytest.raises(UncoveredError, match="d2: 5 rows"):
        push(table, segment("d2", 2, rows=19, hours=(29, 47), source="d2"), segment("d3", rows=5, source="d2"))
    assert held(table) == {"d1": 1, "d2": 1}


@pytest.mark.parametrize(
    "other",
    [
        segment(crc=2, rows=11),
        segment(crc=2, hours=(1, 23)),
        segment(crc=2, hours=(0, 22)),
        segment(crc=2, hours=None),
        segment(crc=2, rows=30, source="s3://lake/other"),
        segment(crc=2, rows=30, source=""),
    ],
    ids=["fewer rows", "begins later", "ends earlier", "no times", "another source", "an unknown source"],
)
def test_a_version_that_may_lack_rows_is_refused(other: SegmentRecord, table: SqliteMetastore) -> None:
    push(table, segment())
    with pytest.raises(UncoveredError):
        push(table, other)
    assert held(table) == {"day": 1}
    assert push(table, other, replace=["day"]).replaced == ("day",), "the request stands for it by name"
    push(table, segment(), replace_rows=True)
    assert push(table, other, replace_all=True).replaced == ("day",), "the request stands for the table"


def test_a_source_that_has_grown_and_one_that_has_not_need_no_word(table: SqliteMetastore) -> None:
    push(table, segment(hours=(0, 11)))
    grown = push(table, segment(crc=2, rows=24))
    assert (grown.replaced, grown.rows) == (("day",), RowCounts(before=12, after=24, replaced=12, replacing=24))
    again = push(table, segment(crc=2, rows=24, source="s3://moved"))
    assert (again.unchanged, again.rows) == (("day",), RowCounts(before=24, after=24))


def test_a_table_without_times_is_judged_by_rows_and_source(table: SqliteMetastore) -> None:
    push(table, segment(hours=None))
    assert push(table, segment(crc=2, hours=None)).replaced == ("day",)
    with pytest.raises(UncoveredError):
        push(table, segment(crc=3, hours=None, source="s3://lake/other"))


@pytest.mark.parametrize("is_refresh", [True, False], ids=["of the table", "of a window"])
def test_a_batch_without_rows_empties_nothing_unless_it_is_told_to(is_refresh: bool, table: SqliteMetastore) -> None:
    assert push(table, replace_all=is_refresh).removed == (), "of an empty table"
    push(table, segment("a"), segment("b"))
    names = () if is_refresh else ("a", "b")
    with pytest.raises(UncoveredError, match=r"a batch without rows would remove 2 segments with 24 rows"):
        push(table, replace=names, replace_all=is_refresh)
    assert held(table) == {"a": 1, "b": 1}
    emptied = push(table, replace=names, replace_all=is_refresh, replace_rows=True)
    assert (emptied.removed, emptied.rows) == (("a", "b"), RowCounts(before=24, after=0, removed=24))


def test_what_a_refresh_removes_and_replaces_is_counted_in_rows(table: SqliteMetastore) -> None:
    push(table, segment("a"), segment("b"), segment("same"))
    result = push(table, segment("a", 2, rows=5), segment("c", rows=7), segment("same"), replace_all=True)
    assert (result.published, result.replaced, result.removed) == (("a", "c"), ("a",), ("b",))
    assert result.rows == RowCounts(before=36, after=24, replaced=12, replacing=5, removed=12)
    assert load(table, TABLE).visible_docs == 24


def test_what_takes_the_place_of_others_has_a_refresh_time_whatever_its_name(table: SqliteMetastore) -> None:
    push(table, segment("a"), segment("b"))
    assert {one.refresh_time_ms for one in load(table, TABLE).visible.values()} == {-1}, "nothing was replaced"
    push(table, segment("c"), segment("d"), replace=["a"])
    refreshed = {name for name, one in load(table, TABLE).visible.items() if one.refresh_time_ms > 0}
    assert refreshed == {"c", "d"}, "rows of a may be in either"
    push(table, segment("e"), replace_all=True, replace_rows=True)
    assert load(table, TABLE).visible["e"].refresh_time_ms > 0


@pytest.mark.usefixtures("outputs_are_loaded")
def test_outputs_of_a_replacement_and_what_it_has_hidden_are_no_rows_that_go(table: SqliteMetastore) -> None:
    push(table, segment("h1"), segment("h2"))
    merged = segment("day", rows=20, source="").model_copy(update={"custom_map": {MERGE_LEVEL: "day"}})
    entry = replacements.start_replacement(table, TABLE, Replacement(segments_from=["h1", "h2"], segments_to=["day"]))
    hidden = publish_request(table, TABLE, PublishRequest(records=(merged,), entry=entry))
    assert hidden.rows == RowCounts(before=24, after=24)
    replacements.end_replacement(table, TABLE, entry)
    result = push(table, segment("h1", 2, rows=3, source="elsewhere"), replace=["day"])
    assert (result.removed, result.replaced) == (("day",), ())
    assert result.rows == RowCounts(before=20, after=3, removed=20)
    assert load(table, TABLE).visible_docs == 3


SEGMENTS = st.builds(
    lambda crc, rows, first, length, source: segment(crc=crc, rows=rows, hours=(first, first + length), source=source),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from(["x", "y"]),
)


@given(st.lists(SEGMENTS, min_size=2, max_size=8))
def test_however_versions_follow_each_other_what_was_there_is_within_what_is_there(
    versions: list[SegmentRecord],
) -> None:
    """Rows, stretch of time and source of a segment only ever grow."""
    now = versions[0]
    for new in versions[1:]:
        taken = coverage.PublishEffect(replaced={"day": now}, removed=(), added=(new,))
        try:
            coverage.check(taken, num_records=1, declared=frozenset(), replaces_all=False)
        except UncoveredError:
            continue
        assert now.start_time_ms is not None is not new.start_time_ms
        assert new.start_time_ms <= now.start_time_ms
        assert (new.end_time_ms or 0) >= (now.end_time_ms or 0)
        assert new.total_docs >= now.total_docs
        assert new.source == now.source
        now = new


def test_a_dry_run_answers_as_the_request_would_and_writes_nothing(table: SqliteMetastore) -> None:
    push(table, segment("a"), segment("b"))
    epoch = load(table, TABLE).epoch
    records = (segment("a", 2, rows=13), segment("b"), segment("c"))
    planned = publish_request(table, TABLE, PublishRequest(records=records, is_dry_run=True))
    with pytest.raises(UncoveredError):
        publish_request(table, TABLE, PublishRequest(records=(segment("a", 3, rows=1),), is_dry_run=True))
    assert load(table, TABLE).epoch == epoch
    done = publish_request(table, TABLE, PublishRequest(records=records))
    assert (planned.published, planned.replaced, planned.unchanged) == (("a", "c"), ("a",), ("b",))
    assert (done.published, done.replaced, done.unchanged, done.rows) == (
        planned.published,
        planned.replaced,
        planned.unchanged,
        planned.rows,
    )
