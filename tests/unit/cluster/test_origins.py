"""A segment that was merged away long ago is not taken a second time, and nobody else is refused."""

from collections.abc import Sequence

import pytest

from merlot.cluster import paths
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.records import RootRecord, SegmentRecord, TrashRecord
from merlot.cluster.segments import origins
from merlot.cluster.segments.mutations import ForgetReplacement, PreconditionError
from merlot.cluster.segments.publish import PublishRequest, PublishResult, publish_request
from merlot.cluster.segments.remnants import restored
from merlot.cluster.segments.republish import MergedBeforeError
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL

pytestmark = pytest.mark.usefixtures("outputs_are_loaded")
TABLE = TableName("t_OFFLINE")
MERGED = {MERGE_LEVEL: "day"}


@pytest.fixture
def table(store: SqliteMetastore) -> SqliteMetastore:
    store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
    push(store, segment("h1"), segment("h2"), segment("other"))
    return store


def segment(name: str, crc: int = 7, custom_map: dict[str, str] | None = None) -> SegmentRecord:
    url = f"file:///d/{name}@{crc}"
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=url, total_docs=1, custom_map=custom_map or {})


def push(store: SqliteMetastore, *records: SegmentRecord, replace: tuple[str, ...] = ()) -> PublishResult:
    return publish_request(store, TABLE, PublishRequest(records=records, replace=replace, replace_rows=not records))


def replaced(
    store: SqliteMetastore, inputs: Sequence[str], outputs: Sequence[SegmentRecord], *, is_over: bool = True
) -> str:
    """A replacement that has ended, and whose grace period has."""
    names = [one.name for one in outputs]
    entry = replacements.start_replacement(store, TABLE, Replacement(segments_from=inputs, segments_to=names))
    replacements.put_outputs(store, TABLE, entry, outputs)
    replacements.end_replacement(store, TABLE, entry)
    if is_over:
        forget(store, entry)
    return entry


def forget(store: SqliteMetastore, *entries: str) -> None:
    mutate(store, TABLE, lambda _: [ForgetReplacement(entry) for entry in entries])


def names(store: SqliteMetastore) -> set[str]:
    return set(load(store, TABLE).segments)


def test_what_was_merged_is_there_already(table: SqliteMetastore) -> None:
    replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)])
    again = push(table, segment("h1"), segment("new"))
    assert (again.unchanged, again.published) == (("h1",), ("new",))
    assert names(table) == {"day", "other", "new"}
    with pytest.raises(MergedBeforeError, match=r"rows would count twice segment=h2 now_in=day; .* merlot backfill"):
        push(table, segment("h2", crc=8), segment("newer"))
    assert names(table) == {"day", "other", "new"}, "nothing of the request"


@pytest.mark.parametrize("is_later", [False, True], ids=["one after the other", "both at once"])
def test_a_merge_of_merges_knows_it_too(is_later: bool, table: SqliteMetastore) -> None:
    first = replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)], is_over=not is_later)
    second = replaced(table, ["day", "other"], [segment("month", custom_map=MERGED)], is_over=not is_later)
    if is_later:
        forget(table, first, second)
    assert names(table) == {"month"}
    assert push(table, segment("h1"), segment("other")).unchanged == ("h1", "other")
    assert push(table, segment("day", crc=9)).published == ("day",), "nobody pushed it before"


def test_what_was_backfilled_is_refused_in_any_version(table: SqliteMetastore) -> None:
    replaced(table, ["h1"], [segment("h1_b1", custom_map={BACKFILLED: "true"})])
    with pytest.raises(MergedBeforeError, match="segment=h1 now_in=h1_b1"):
        push(table, segment("h1"))
    replaced(table, ["h1_b1", "h2"], [segment("day", custom_map=MERGED)])
    with pytest.raises(MergedBeforeError, match="segment=h1 now_in=day"):
        push(table, segment("h1"))
    assert push(table, segment("h2")).unchanged == ("h2",)


def test_who_removes_the_merged_segment_may_push_its_parts_again(table: SqliteMetastore) -> None:
    replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)])
    result = push(table, segment("h1"), segment("h2", crc=8), replace=("day",))
    assert (result.published, result.removed) == (("h1", "h2"), ("day",))
    assert names(table) == {"h1", "h2", "other"}


@pytest.mark.parametrize("is_over", [False, True], ids=["within the grace period", "after it"])
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("crc", [7, 8], ids=["same rows", "other rows"])
def test_a_push_over_a_merged_segment_does_not_bring_its_inputs_back(
    crc: int, levels: int, is_over: bool, table: SqliteMetastore
) -> None:
    """Nobody knows which of the inputs' rows the pushed version has, so they are refused."""
    replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)], is_over=is_over)
    if levels == 2:
        replaced(table, ["day", "other"], [segment("month", custom_map=MERGED)], is_over=is_over)
    merged = "day" if levels == 1 else "month"
    request = PublishRequest(records=(segment(merged, crc=9),), replace_rows=True)
    assert publish_request(table, TABLE, request).replaced == (merged,)
    before = set(load(table, TABLE).visible)
    with pytest.raises((MergedBeforeError, PreconditionError)):
        push(table, segment("h1", crc=crc))
    assert set(load(table, TABLE).visible) == before
    assert push(table, segment("h1", crc=crc), replace=(merged,)).published == ("h1",), "it takes the place"


def test_who_replaces_segments_by_himself_may_have_them_back(table: SqliteMetastore) -> None:
    replaced(table, ["h1", "h2"], [segment("v2")])
    assert push(table, segment("h1"), replace=("v2",)).published == ("h1",)
    assert push(table, segment("h2", crc=8)).published == ("h2",)


def two_halves(store: SqliteMetastore, *, is_over: bool) -> str:
    """Three segments merged into two: whose rows are in which, nobody knows."""
    names = ["p1", "p2", "p3"]
    push(store, *map(segment, names))
    halves = [segment("m1", custom_map=MERGED), segment("m2", custom_map=MERGED)]
    return replaced(store, names, halves, is_over=is_over)


@pytest.mark.parametrize("is_over", [False, True], ids=["within the grace period", "after it"])
def test_a_push_that_removes_a_part_of_what_a_segment_became_is_refused(is_over: bool, table: SqliteMetastore) -> None:
    two_halves(table, is_over=is_over)
    with pytest.raises(MergedBeforeError, match="a part of what holds its rows stays segment=p1"):
        push(table, segment("p1"), replace=("m1",))
    assert set(load(table, TABLE).visible) == {"h1", "h2", "other", "m1", "m2"}
    assert push(table, segment("p1"), replace=("m1", "m2")).published == ("p1",)
    assert set(load(table, TABLE).visible) == {"h1", "h2", "other", "p1"}


@pytest.mark.parametrize("crc", [7, 8], ids=["same rows", "other rows"])
def test_a_batch_that_stands_for_a_window_takes_the_place_of_what_was_merged_from_it_just_now(
    crc: int, table: SqliteMetastore
) -> None:
    """The inputs are still there, hidden, and must not be taken for part of the table."""
    first = replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)], is_over=False)
    second = replaced(table, ["day", "other"], [segment("month", custom_map=MERGED)], is_over=False)
    result = push(table, segment("h1", crc=crc), segment("new"), replace=("month",))
    assert (result.published, result.removed) == (("h1", "new"), ("month",))
    view = load(table, TABLE)
    assert set(view.visible) == set(view.segments) == {"h1", "new"}
    assert view.segments["h1"].crc == crc
    assert not view.lineage.keys() & {first, second}


def test_what_was_deleted_after_a_merge_can_be_pushed_again_at_once(table: SqliteMetastore) -> None:
    replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)], is_over=False)
    push(table, replace=("day",))
    assert set(load(table, TABLE).visible) == {"other"}
    assert push(table, segment("h1")).published == ("h1",)
    assert set(load(table, TABLE).visible) == {"h1", "other"}


@pytest.mark.parametrize("is_over", [False, True], ids=["within the grace period", "after it"])
def test_what_was_merged_into_segments_of_which_one_was_deleted_is_not_there_as_it_was(
    is_over: bool, table: SqliteMetastore
) -> None:
    entry = two_halves(table, is_over=is_over)
    push(table, replace=("m1",))
    with pytest.raises(MergedBeforeError, match="segment=p1 now_in=m2"):
        push(table, segment("p1"))
    if not is_over:
        forget(table, entry)
        with pytest.raises(MergedBeforeError, match="segment=p1 now_in=m2"):
            push(table, segment("p1"))
    push(table, replace=("m2",))
    assert push(table, segment("p1")).published == ("p1",)


@pytest.mark.parametrize("is_over", [False, True], ids=["within the grace period", "after it"])
def test_a_merged_segment_that_comes_back_from_the_trash_is_what_it_was_made_of(
    is_over: bool, table: SqliteMetastore
) -> None:
    entry = replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)], is_over=is_over)
    push(table, replace=("day",))
    if not is_over:
        forget(table, entry)
    undelete(table, "day")
    with pytest.raises(PreconditionError, match=r"rows are in the table already, .* now_in=day"):
        undelete(table, "h1")
    with pytest.raises(MergedBeforeError, match="segment=h2 now_in=day"):
        push(table, segment("h2"))


def test_a_merged_segment_stays_in_the_trash_while_its_rows_are_in_what_it_was_merged_into(
    table: SqliteMetastore,
) -> None:
    replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)])
    replaced(table, ["day", "other"], [segment("month", custom_map=MERGED)])
    with pytest.raises(PreconditionError, match=r"rows are in the table already, .* segment=day now_in=month"):
        undelete(table, "day")
    push(table, replace=("month",))
    undelete(table, "day")
    assert names(table) == {"day"}


def undelete(store: SqliteMetastore, name: str) -> None:
    """As the controller does, from the last list of the trash that names the segment."""
    for path in reversed(store.children(paths.trash(TABLE))):
        node = store.get(paths.child(paths.trash(TABLE), path))
        assert node is not None
        trash = TrashRecord.from_bytes(node.data, path)
        for number, url in enumerate(trash.urls):
            if url == f"file:///d/{name}@7":
                record = restored(segment(name), trash.remnants[number])
                publish_request(store, TABLE, PublishRequest(records=(record,), removed_ms={name: trash.deleted_ms}))
                return
    raise AssertionError(f"not in the trash: {name}")


def test_what_is_kept_in_mind_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST", 3)
    inputs = [segment(f"in_{number}", crc=number + 1) for number in range(8)]
    (kept,) = origins.remember(TABLE, inputs, [segment("out", custom_map=MERGED)])
    found = origins.origins([kept], [one.name for one in inputs])
    assert len(found) == 3
    assert all(found[one.name].is_whole(one.crc) for one in inputs if one.name in found)


def test_a_client_does_not_say_what_a_segment_is_made_of(table: SqliteMetastore) -> None:
    (made,) = origins.remember(TABLE, [segment("h1")], [segment("day", custom_map=MERGED)])
    push(table, made)
    assert load(table, TABLE).segments["day"].made_of == ""
