"""What a broker routes while segments replace each other, case by case."""

from collections.abc import Mapping

from merlot.broker.routing.atomic_swaps import LONGEST_MS
from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.cluster.records import LineageMark, LineageState, RootRecord, SegmentRecord
from merlot.cluster.segments.view import Bucket, TableView
from merlot.ids import InstanceId, TableName

TABLE = TableName("flights_OFFLINE")
NOW_MS = 1_700_000_000_000
A = InstanceId("Server_host_1")


def record(name: str, crc: int = 1, *, replaces: str = "", replaced_by: str = "") -> SegmentRecord:
    return SegmentRecord(
        name=name,
        crc=crc,
        size_bytes=1,
        url=f"file:///{name}",
        total_docs=10,
        push_time_ms=NOW_MS,
        replaces=replaces,
        replaced_by=replaced_by,
    )


HOURS = [record("h1", replaced_by="day1"), record("h2", replaced_by="day1")]
MORE_HOURS = [record("h3", replaced_by="day2")]
DAYS = [record("d1", replaces="day1"), record("d2", replaces="day2")]
LOADED = {"h1@1", "h2@1", "h3@1"}


def inputs(
    records: list[SegmentRecord], loaded: set[str], now_ms: int = NOW_MS, **states: LineageState
) -> RoutingInputs:
    bucket = Bucket("x", {one.name: one for one in records}, {one.name: (A,) for one in records})
    outputs = {one.replaces: 1 for one in records if one.replaces}
    num_inputs = {entry: sum(one.replaced_by == entry for one in records) for entry in states}
    lineage = {
        entry: LineageMark(state, NOW_MS, "", num_inputs[entry], outputs.get(entry, 0))
        for entry, state in states.items()
    }
    view = TableView(TABLE, RootRecord(num_buckets=1, lineage=lineage), 1, {0: bucket})
    standings: Mapping[InstanceId, ServerStanding] = {A: ServerStanding.PREFERRED}
    return RoutingInputs(view=view, reports={A: frozenset(loaded)}, standings=standings, now_ms=now_ms)


def keys(snapshot: RoutingSnapshot) -> set[str]:
    return {key for route in snapshot.select(0) for key in route.segments}


IN_PROGRESS, COMPLETED, REVERTED = LineageState.IN_PROGRESS, LineageState.COMPLETED, LineageState.REVERTED
EVERYTHING = [*HOURS, *MORE_HOURS, *DAYS]


def test_outputs_are_unseen_until_the_end_even_if_they_are_loaded() -> None:
    snapshot = build(inputs(EVERYTHING, LOADED | {"d1@1", "d2@1"}, day1=IN_PROGRESS, day2=IN_PROGRESS))
    assert (keys(snapshot), snapshot.total_docs) == (LOADED, 30)


def test_each_entry_switches_by_itself_once_its_outputs_can_answer() -> None:
    before = build(inputs(EVERYTHING, LOADED, day1=IN_PROGRESS, day2=IN_PROGRESS))
    ended = build(inputs(EVERYTHING, LOADED, day1=COMPLETED, day2=COMPLETED), before)
    assert keys(ended) == LOADED
    first = build(inputs(EVERYTHING, LOADED | {"d2@1"}, day1=COMPLETED, day2=COMPLETED), ended)
    assert keys(first) == {"h1@1", "h2@1", "d2@1"}
    second = build(inputs(EVERYTHING, LOADED | {"d1@1", "d2@1"}, day1=COMPLETED, day2=COMPLETED), first)
    assert (keys(second), second.unavailable) == ({"d1@1", "d2@1"}, ())


def test_entry_that_was_switched_stays_so_and_says_what_is_missing() -> None:
    switched = build(inputs(EVERYTHING, LOADED | {"d1@1", "d2@1"}, day1=COMPLETED, day2=COMPLETED))
    lost = build(inputs(EVERYTHING, LOADED | {"d2@1"}, day1=COMPLETED, day2=COMPLETED), switched)
    assert (keys(lost), lost.unavailable) == ({"d2@1"}, ("d1@1",))


def test_reversal_brings_the_inputs_back_in_one_step() -> None:
    switched = build(inputs(EVERYTHING, LOADED | {"d1@1", "d2@1"}, day1=COMPLETED, day2=COMPLETED))
    waiting = build(inputs(EVERYTHING, {"h1@1", "h3@1", "d1@1", "d2@1"}, day1=REVERTED, day2=COMPLETED), switched)
    assert keys(waiting) == {"d1@1", "d2@1"}
    back = build(inputs(EVERYTHING, LOADED | {"d1@1", "d2@1"}, day1=REVERTED, day2=COMPLETED), waiting)
    assert keys(back) == {"h1@1", "h2@1", "d2@1"}


def test_cleaning_changes_no_route() -> None:
    switched = build(inputs(EVERYTHING, LOADED | {"d1@1", "d2@1"}, day1=COMPLETED, day2=COMPLETED))
    cleaned = build(inputs([record("d1"), record("d2")], {"d1@1", "d2@1"}), switched)
    assert (keys(cleaned), cleaned.swaps, cleaned.completed) == ({"d1@1", "d2@1"}, (), frozenset())


def test_cleaning_that_overtakes_the_loading_of_outputs_loses_no_row() -> None:
    before = build(inputs(EVERYTHING, LOADED, day1=COMPLETED, day2=COMPLETED))
    assert keys(before) == LOADED
    cleaned = build(inputs([record("d1"), record("d2")], LOADED), before)
    assert keys(cleaned) == LOADED
    loaded = build(inputs([record("d1"), record("d2")], LOADED | {"d1@1", "d2@1"}), cleaned)
    assert keys(loaded) == {"d1@1", "d2@1"}


def test_broker_that_starts_before_the_outputs_are_loaded_routes_the_inputs() -> None:
    started = build(inputs(EVERYTHING, LOADED | {"d2@1"}, day1=COMPLETED, day2=COMPLETED))
    assert (keys(started), started.unavailable) == ({"h1@1", "h2@1", "d2@1"}, ())


def test_broker_that_starts_when_neither_side_can_answer_says_so() -> None:
    started = build(inputs(EVERYTHING, {"h1@1", "d2@1"}, day1=COMPLETED, day2=COMPLETED))
    assert (keys(started), started.unavailable) == ({"d2@1"}, ("d1@1",))


def test_entries_that_build_on_each_other_switch_in_order_or_together() -> None:
    hour = record("h", replaced_by="day")
    day = record("d", replaces="day", replaced_by="month")
    month = record("m", replaces="month")
    chain = [hour, day, month]
    before = build(inputs(chain, {"h@1"}, day=COMPLETED, month=COMPLETED))
    assert keys(before) == {"h@1"}
    in_order = build(inputs(chain, {"h@1", "d@1"}, day=COMPLETED, month=COMPLETED), before)
    assert keys(in_order) == {"d@1"}
    together = build(inputs(chain, {"h@1", "m@1"}, day=COMPLETED, month=COMPLETED), before)
    assert keys(together) == {"m@1"}


def test_entry_that_is_late_goes_on_with_its_inputs_as_long_as_they_answer() -> None:
    before = build(inputs(EVERYTHING, LOADED, day1=COMPLETED, day2=COMPLETED))
    late_ms = NOW_MS + LONGEST_MS
    late = build(inputs(EVERYTHING, LOADED, late_ms, day1=COMPLETED, day2=COMPLETED), before)
    assert (keys(late), late.unavailable) == (LOADED, ())
    lost = build(inputs(EVERYTHING, LOADED - {"h1@1"}, late_ms, day1=COMPLETED, day2=COMPLETED), late)
    assert (keys(lost), lost.unavailable) == ({"h3@1"}, ("d1@1",))


def test_new_version_that_takes_over_from_a_removed_segment_is_awaited_by_both() -> None:
    before = build(inputs([record("a"), record("b")], {"a@1", "b@1"}))
    published = build(inputs([record("b", crc=2)], {"a@1", "b@1"}), before)
    assert keys(published) == {"a@1", "b@1"}
    loaded = build(inputs([record("b", crc=2)], {"a@1", "b@1", "b@2"}), published)
    assert keys(loaded) == {"b@2"}


def test_pushes_of_different_segments_do_not_wait_for_each_other() -> None:
    before = build(inputs([record("a"), record("b")], {"a@1", "b@1"}))
    first = build(inputs([record("a2"), record("b")], {"a@1", "b@1"}), before)
    second = build(inputs([record("a2"), record("b2")], {"a@1", "b@1"}), first)
    assert keys(second) == {"a@1", "b@1"}
    loaded = build(inputs([record("a2"), record("b2")], {"a@1", "b@1", "b2@1"}), second)
    assert keys(loaded) == {"a@1", "b2@1"}
