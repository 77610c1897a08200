"""A day that a batch divides into several segments: however it is divided, published and merged, no row of it is in the
table twice, and none is gone."""

import contextlib
import itertools
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlot.cluster import paths
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.segments.coverage import RowCounts, UncoveredError
from merlot.cluster.segments.families import newest_divisions
from merlot.cluster.segments.mutations import ForgetReplacement
from merlot.cluster.segments.publish import PublishRequest, PublishResult, publish_request
from merlot.cluster.segments.republish import MergedBeforeError
from merlot.cluster.segments.transaction import WriteContext, mutate
from merlot.cluster.segments.view import load
from merlot.errors import InvalidInputError, MerlotError
from merlot.ids import SegmentPart, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.build.slices import even_slices
from merlot.spec.tasks import MERGE_LEVEL
from merlot.testing.clock import FakeClock

pytestmark = pytest.mark.usefixtures("outputs_are_loaded")
TABLE = TableName("t_OFFLINE")
MINUTE_MS = 60_000
Row = tuple[int, int]
"""Its minute, and which of two values it has."""


@pytest.fixture
def table(store: SqliteMetastore) -> SqliteMetastore:
    store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
    return store


def day_rows(number: int, first: int = 0) -> list[Row]:
    return [(minute, first if minute == 0 else 0) for minute in range(number)]


def parts(rows: list[Row], most: int, *, family: str = "day", source: str = "lake") -> list[SegmentRecord]:
    """As a batch builds them; a crc stands for the rows."""
    slices = even_slices(len(rows), most)
    return [
        segment(SegmentPart(family, number, len(slices)).name, rows[part], source)
        for number, part in enumerate(slices, 1)
    ]


def segment(name: str, rows: list[Row], source: str = "lake", **more: object) -> SegmentRecord:
    crc = zlib.crc32(repr(rows).encode())
    return SegmentRecord(
        name=name,
        crc=crc,
        size_bytes=1,
        url=f"file:///d/{name}@{crc}",
        total_docs=len(rows),
        start_time_ms=rows[0][0] * MINUTE_MS,
        end_time_ms=rows[-1][0] * MINUTE_MS,
        source=source,
        **more,
    )


def push(
    store: SqliteMetastore, records: Iterable[SegmentRecord], *, replace: tuple[str, ...] = (), now_ms: int = 1
) -> PublishResult:
    request = PublishRequest(records=tuple(records), replace=replace)
    return publish_request(store, TABLE, request, context=WriteContext(clock=FakeClock(now_ms=now_ms)))


def names(store: SqliteMetastore) -> list[str]:
    return sorted(load(store, TABLE).visible)


def merge(store: SqliteMetastore, inputs: list[str], output: SegmentRecord) -> str:
    entry = replacements.start_replacement(store, TABLE, Replacement(segments_from=inputs, segments_to=[output.name]))
    replacements.put_outputs(store, TABLE, entry, [output])
    replacements.end_replacement(store, TABLE, entry)
    return entry


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (SegmentPart("t_2013-01-31_p3"), "t_2013-01-31_p3"),
        (SegmentPart("t_0", 2, 3), "t_0~2of3"),
        (SegmentPart("t_0", 7, 12), "t_0~07of12"),
    ],
    ids=str,
)
def test_a_part_is_read_from_its_name(part: SegmentPart, name: str) -> None:
    assert part.name == name
    assert SegmentPart.of(name) == part


@pytest.mark.parametrize("name", ["a~", "a~1of1", "a~0of2", "a~3of2", "a~7of12", "a~1of2_b12", "~1of2", "a~1of2\n"])
def test_another_name_is_a_family_of_its_own(name: str) -> None:
    assert SegmentPart.of(name) == SegmentPart(name)


def test_names_of_parts_sort_as_their_numbers_do() -> None:
    found = [SegmentPart("day", number, 11).name for number in range(1, 12)]
    assert found == sorted(found)


def test_a_day_that_is_divided_otherwise_replaces_all_its_parts_and_keeps_its_place(table: SqliteMetastore) -> None:
    rows = day_rows(12)
    push(table, parts(rows, 12), now_ms=100)
    divided = push(table, parts(rows, 5), now_ms=200)
    assert (divided.removed, divided.replaced) == (("day",), ())
    assert divided.rows == RowCounts(before=12, after=12, removed=12)
    assert names(table) == ["day~1of3", "day~2of3", "day~3of3"]
    assert {one.push_time_ms for one in load(table, TABLE).visible.values()} == {100}
    assert push(table, parts(rows, 5)).published == (), "the same again"
    assert push(table, parts(day_rows(14), 20)).rows == RowCounts(before=12, after=14, removed=12)
    assert names(table) == ["day"]


def test_the_parts_of_a_day_are_judged_together(table: SqliteMetastore) -> None:
    """The first part ends earlier than the old one did, and the last begins later."""
    push(table, parts(day_rows(12), 6))
    assert push(table, parts([*((minute // 2, 0) for minute in range(18)), (20, 0)], 10)).replaced
    with pytest.raises(UncoveredError, match=r"day: 19 rows in 2 segments, .* -> 12 rows in 2 segments"):
        push(table, parts(day_rows(12), 6))
    with pytest.raises(UncoveredError, match=r"day: 19 rows in 2 segments, .* of lake -> 40 rows, .* of sea"):
        push(table, parts(day_rows(40), 40, source="sea"))
    assert push(table, parts(day_rows(5), 5), replace=("day~1of2", "day~2of2")).removed == ("day~1of2", "day~2of2")


def test_a_window_that_holds_some_parts_of_a_day_does_not_stand_for_the_others(table: SqliteMetastore) -> None:
    push(table, parts(day_rows(12), 6))
    with pytest.raises(UncoveredError, match="day: 12 rows in 2 segments"):
        push(table, parts(day_rows(6), 6), replace=("day~1of2",))
    with pytest.raises(UncoveredError, match="day: 12 rows in 2 segments"):
        push(table, parts(day_rows(6), 3), replace=("day~1of2",))
    assert names(table) == ["day~1of2", "day~2of2"]


def test_a_request_that_names_segments_twice_is_refused_and_names_three_of_them(table: SqliteMetastore) -> None:
    records = parts(day_rows(12), 3)
    with pytest.raises(InvalidInputError, match=r"twice in one request segments=\['day~2of4'\]"):
        push(table, [*records, records[1]])
    with pytest.raises(InvalidInputError, match=r"segments=\['day~1of4', 'day~2of4', 'day~3of4'\]"):
        push(table, [*records, *reversed(records)])
    assert names(table) == []


def test_some_of_the_parts_do_not_take_the_place_of_a_day(table: SqliteMetastore) -> None:
    push(table, parts(day_rows(12), 12))
    first, second = parts(day_rows(12), 6)
    with pytest.raises(InvalidInputError, match="1 of 2 new ones cannot take their place segment=day"):
        push(table, [first])
    with pytest.raises(InvalidInputError, match="published twice, in 1 parts and in 2 segment=day"):
        push(table, [first, second, *parts(day_rows(12), 12)])
    assert names(table) == ["day"]
    push(table, [first, second])
    assert push(table, [second]).unchanged == ("day~2of2",), "a part by itself, of the same division"


def test_of_files_without_records_the_newest_division_that_is_whole_is_taken() -> None:
    files = {"day": 5, "day~1of2": 7, "day~2of2": 8, "day~1of3": 9, "day~3of3": 9, "other~2of2": 1, "merged_1": 1}
    assert newest_divisions(files) == {"day~1of2", "day~2of2", "other~2of2", "merged_1"}
    assert newest_divisions({**files, "day": 9}) == {"day", "other~2of2", "merged_1"}


def test_what_is_left_of_a_lost_division_comes_back_in_place_of_an_older_one(table: SqliteMetastore) -> None:
    push(table, parts(day_rows(12), 12))
    records = parts(day_rows(13), 5)[:2]
    request = PublishRequest(records=tuple(records), replace_rows=True, is_recovery=True)
    assert publish_request(table, TABLE, request).removed == ("day",)
    assert names(table) == ["day~1of3", "day~2of3"]


def test_other_days_and_other_names_are_left_alone(table: SqliteMetastore) -> None:
    push(
        table, [*parts(day_rows(9), 3, family="day2"), *parts(day_rows(9), 3, family="day_p1"), *parts(day_rows(9), 9)]
    )
    push(table, parts(day_rows(9), 4))
    assert names(table) == sorted(
        [f"{family}~{part}of3" for family, part in itertools.product(["day", "day2", "day_p1"], [1, 2, 3])]
    )


@pytest.mark.parametrize("is_over", [False, True], ids=["within the grace period", "after it"])
@pytest.mark.parametrize(("before", "after"), [(12, 6), (6, 12), (6, 4)])
def test_a_merged_day_that_is_divided_otherwise_is_refused_until_its_window_is_replaced(
    before: int, after: int, is_over: bool, table: SqliteMetastore
) -> None:
    rows = day_rows(12)
    push(table, parts(rows, before))
    entry = merge(table, names(table), segment("merged", rows, custom_map={MERGE_LEVEL: "d"}))
    if is_over:
        mutate(table, TABLE, lambda _: [ForgetReplacement(entry)])
    assert set(push(table, parts(rows, before)).unchanged) == {one.name for one in parts(rows, before)}
    with pytest.raises(MergedBeforeError, match="now_in=merged"):
        push(table, parts(rows, after))
    push(table, parts(rows, after), replace=("merged",))
    assert names(table) == sorted(one.name for one in parts(rows, after))


PUSHES = st.tuples(st.just("push"), st.integers(1, 7), st.integers(1, 7), st.integers(0, 1))
MERGES = st.tuples(st.just("merge"), st.integers(1, 127), st.integers(0, 1))
FORGETS = st.tuples(st.just("forget"))


@settings(deadline=None)
@given(st.lists(PUSHES | MERGES | FORGETS, min_size=2, max_size=10))
def test_whatever_is_pushed_and_merged_in_turn_the_table_has_each_row_once(
    steps: list[tuple[Any, ...]],
) -> None:
    """A push that is taken makes the table hold its rows, and one that is refused changes nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(SqliteMetastore(Path(folder) / "meta.db")) as store,
    ):
        store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
        model = Model(store)
        for step in steps:
            model.take(*step)
            assert sorted(model.held()) == sorted(model.expected)


class Model:
    """A table, and the rows that it should hold."""

    def __init__(self, store: SqliteMetastore) -> None:
        self.store = store
        self.expected: list[Row] = []
        self._rows_of: dict[str, list[Row]] = {}
        self._entries: list[str] = []

    def held(self) -> list[Row]:
        """The rows that queries see."""
        return [row for one in load(self.store, TABLE).visible.values() for row in self._rows_of[one.key_text]]

    def take(self, kind: str, *numbers: int) -> None:
        """Do one step."""
        if kind == "push":
            self._push(*numbers)
        elif kind == "merge":
            self._merge(*numbers)
        else:
            self._forget()

    def _push(self, number: int, most: int, first: int) -> None:
        rows = day_rows(number, first)
        records = parts(rows, most)
        for one, place in zip(records, even_slices(len(rows), most), strict=True):
            self._rows_of[one.key_text] = rows[place]
        with contextlib.suppress(MerlotError):
            push(self.store, records)
            self.expected = rows

    def _merge(self, chosen: int, is_over: int) -> None:
        visible = load(self.store, TABLE).visible
        inputs = [name for place, name in enumerate(sorted(visible)) if chosen >> place & 1]
        if not inputs:
            return
        rows = sorted(row for name in inputs for row in self._rows_of[visible[name].key_text])
        output = segment(f"merged_{len(self._entries)}", rows, source="", custom_map={MERGE_LEVEL: "d"})
        self._rows_of[output.key_text] = rows
        self._entries.append(merge(self.store, inputs, output))
        if is_over:
            self._forget()

    def _forget(self) -> None:
        """Grace periods end, that of the oldest merge first."""
        lineage = load(self.store, TABLE).lineage
        known = [entry for entry in self._entries if entry in lineage]
        mutate(self.store, TABLE, lambda _: [ForgetReplacement(entry) for entry in known])
