"""What a server decides to load, keep and let go."""

from hypothesis import given
from hypothesis import strategies as st

from merlot.cluster.records import SegmentRecord
from merlot.server.loader import Desired, Holdings, LoadFailure, decide

GRACE_S = 60.0


def record(key: str) -> SegmentRecord:
    name, _, crc = key.rpartition("@")
    return SegmentRecord(name=name, crc=int(crc), size_bytes=1, url=f"file:///{key}", total_docs=1)


def desire(*keys: str, irreplaceable: tuple[str, ...] = ()) -> Desired:
    records = [record(key) for key in keys]
    return Desired(records={one.key_text: one for one in records}, irreplaceable=irreplaceable)


def test_what_is_assigned_and_not_here_is_loaded() -> None:
    actions = decide(desire("a@1", "b@1", "c@1"), Holdings(loaded=["a@1"], loading=["b@1"]), 0.0, GRACE_S)
    assert [str(one.key) for one in actions.load] == ["c@1"]


def test_a_replaced_version_is_served_until_the_new_one_is_loaded_and_its_grace_is_over() -> None:
    before = decide(desire("a@2"), Holdings(loaded=["a@1"]), 0.0, GRACE_S)
    assert ([str(one.key) for one in before.load], before.retire, before.drop) == (["a@2"], (), ())
    loaded = decide(desire("a@2"), Holdings(loaded=["a@1", "a@2"]), 5.0, GRACE_S)
    assert (loaded.retire, loaded.drop, loaded.wake_at) == (("a@1",), (), 65.0)
    waiting = decide(desire("a@2"), Holdings(loaded=["a@1", "a@2"], retired={"a@1": 5.0}), 64.0, GRACE_S)
    assert (waiting.retire, waiting.drop, waiting.wake_at) == ((), (), 65.0)
    over = decide(desire("a@2"), Holdings(loaded=["a@1", "a@2"], retired={"a@1": 5.0}), 65.0, GRACE_S)
    assert (over.drop, over.wake_at) == (("a@1",), None)


def test_an_old_version_stays_while_its_replacement_cannot_be_loaded() -> None:
    failures = {"a@2": LoadFailure("deep store failed", 3, retry_at=100.0)}
    actions = decide(desire("a@2"), Holdings(loaded=["a@1"], failures=failures), 50.0, GRACE_S)
    assert (actions.load, actions.retire, actions.drop, actions.wake_at) == ((), (), (), 100.0)


def test_a_segment_given_to_others_stays_until_one_of_them_has_it() -> None:
    moved = decide(desire(irreplaceable=("a@1",)), Holdings(loaded=["a@1"]), 0.0, GRACE_S)
    assert (moved.retire, moved.drop) == ((), ())
    lost_again = decide(desire(irreplaceable=("a@1",)), Holdings(loaded=["a@1"], retired={"a@1": 0.0}), 99.0, GRACE_S)
    assert (lost_again.revive, lost_again.drop) == (("a@1",), ())


def test_a_segment_that_is_assigned_again_is_revived() -> None:
    actions = decide(desire("a@1"), Holdings(loaded=["a@1"], retired={"a@1": 0.0}), 99.0, GRACE_S)
    assert (actions.revive, actions.drop, actions.load) == (("a@1",), (), ())


def test_a_failed_segment_is_tried_again_when_its_time_has_come() -> None:
    failures = {"a@1": LoadFailure("no", 1, retry_at=10.0)}
    assert decide(desire("a@1"), Holdings(failures=failures), 9.0, GRACE_S).load == ()
    assert len(decide(desire("a@1"), Holdings(failures=failures), 10.0, GRACE_S).load) == 1


def test_waits_between_tries_grow_and_end_growing() -> None:
    failure: LoadFailure | None = None
    waits = []
    for _ in range(12):
        failure = LoadFailure.after(failure, "no", 0.0)
        waits.append(failure.retry_at)
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == 120.0


def test_failures_of_segments_nobody_wants_are_forgotten() -> None:
    assert decide(desire(), Holdings(failures={"a@1": LoadFailure("no", 1, 5.0)}), 0.0, GRACE_S).forget == ("a@1",)


KEYS = st.sampled_from([f"{name}@{crc}" for name in "abc" for crc in (1, 2)])


@given(
    wanted=st.lists(KEYS, unique_by=lambda key: key[0]),
    loaded=st.sets(KEYS),
    irreplaceable=st.sets(KEYS),
    retired_at=st.floats(0, 100),
    now=st.floats(100, 300),
)
def test_no_segment_leaves_before_its_rows_can_be_read_elsewhere(
    wanted: list[str], loaded: set[str], irreplaceable: set[str], retired_at: float, now: float
) -> None:
    desired = desire(*wanted, irreplaceable=tuple(irreplaceable))
    holdings = Holdings(loaded=loaded, retired=dict.fromkeys(loaded, retired_at))
    actions = decide(desired, holdings, now, GRACE_S)
    for key in actions.drop:
        assert key not in wanted
        assert key not in irreplaceable
        assert now - retired_at >= GRACE_S
        successor = next((other for other in wanted if other[0] == key[0]), None)
        assert successor is None or successor in loaded
    assert {str(one.key) for one in actions.load} == set(wanted) - loaded
