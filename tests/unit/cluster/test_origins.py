"""A segment that was merged away long ago is not taken a second time, and nobody else is refused."""

from collections.abc import Sequence

import pytest

from merlot.cluster import lineage, origins, paths
from merlot.cluster.changes import ForgetReplacement, PreconditionError
from merlot.cluster.lineage import Replacement
from merlot.cluster.mutations import mutate
from merlot.cluster.publish import PublishRequest, PublishResult, publish_request
from merlot.cluster.records import RootRecord, SegmentRecord
from merlot.cluster.sqlite import SqliteMetastore
from merlot.cluster.view import load
from merlot.ids import TableName
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL

TABLE = TableName("t_OFFLINE")
MERGED = {MERGE_LEVEL: "day"}


@pytest.fixture(autouse=True)
def _nobody_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "wait_until_loaded", lambda *_: None)


@pytest.fixture
def table(store: SqliteMetastore) -> SqliteMetastore:
    store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
    push(store, segment("h1"), segment("h2"), segment("other"))
    return store


def segment(name: str, crc: int = 7, custom_map: dict[str, str] | None = None, end: int = 0) -> SegmentRecord:
    url = f"file:///d/{name}@{crc}"
    return SegmentRecord(
        name=name, crc=crc, size_bytes=1, url=url, total_docs=1, end_time_ms=end, custom_map=custom_map or {}
    )


def push(store: SqliteMetastore, *records: SegmentRecord, replace: tuple[str, ...] = ()) -> PublishResult:
    return publish_request(store, TABLE, PublishRequest(records=records, replace=replace))


def replaced(
    store: SqliteMetastore, inputs: Sequence[str], outputs: Sequence[SegmentRecord], *, is_over: bool = True
) -> str:
    """A replacement that has ended, and whose grace period has."""
    names = [one.name for one in outputs]
    entry = lineage.start_replacement(store, TABLE, Replacement(segments_from=inputs, segments_to=names))
    lineage.put_outputs(store, TABLE, entry, outputs)
    lineage.end_replacement(store, TABLE, entry)
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
    with pytest.raises(PreconditionError, match=r"rows would count twice segment=h2 now_in=day; .* merlot backfill"):
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
    with pytest.raises(PreconditionError, match="segment=h1 now_in=h1_b1"):
        push(table, segment("h1"))
    replaced(table, ["h1_b1", "h2"], [segment("day", custom_map=MERGED)])
    with pytest.raises(PreconditionError, match="segment=h1 now_in=day"):
        push(table, segment("h1"))
    assert push(table, segment("h2")).unchanged == ("h2",)


def test_who_removes_the_merged_segment_may_push_its_parts_again(table: SqliteMetastore) -> None:
    replaced(table, ["h1", "h2"], [segment("day", custom_map=MERGED)])
    result = push(table, segment("h1"), segment("h2", crc=8), replace=("day",))
    assert (result.published, result.removed) == (("h1", "h2"), ("day",))
    assert names(table) == {"h1", "h2", "other"}


def test_who_replaces_segments_by_himself_may_have_them_back(table: SqliteMetastore) -> None:
    replaced(table, ["h1", "h2"], [segment("v2")])
    assert push(table, segment("h1"), replace=("v2",)).published == ("h1",)
    assert push(table, segment("h2", crc=8)).published == ("h2",)


def test_what_is_kept_in_mind_is_bounded_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST", 3)
    inputs = [segment(f"in_{number}", crc=number + 1) for number in range(8)]
    outputs = [segment(f"out_{end}", custom_map=MERGED, end=end) for end in (1, 2)]
    kept = origins.remember(inputs, outputs)
    assert [one.name for one in kept] == ["out_2", "out_1"]
    assert [len(one.made_of) for one in kept] == [48, 48]
    found = origins.origins(kept, [one.name for one in inputs])
    assert len(found) == 6
    assert all(found[one.name].is_whole(one.crc) for one in inputs if one.name in found)


def test_a_client_does_not_say_what_a_segment_is_made_of(table: SqliteMetastore) -> None:
    (made,) = origins.remember([segment("h1")], [segment("day", custom_map=MERGED)])
    push(table, made)
    assert load(table, TABLE).segments["day"].made_of == ""
