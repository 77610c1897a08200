"""A server's standing follows from its ephemeral and from the calls made to it."""

from merlot.broker.routing.health import FIRST_PAUSE_S, CallOutcome, ServerHealth, ServerStanding
from merlot.ids import InstanceId

ANSWERED, UNREACHED, LATE = CallOutcome
A, B = InstanceId("Server_a_1"), InstanceId("Server_b_1")
SUSPECT_S = 30.0


def health_of(*live: InstanceId) -> ServerHealth:
    health = ServerHealth(SUSPECT_S)
    health.observe_live(dict.fromkeys(live, 1), 0.0)
    return health


def test_lost_ephemeral_alone_does_not_take_a_server_out_at_once() -> None:
    health = health_of(A, B)
    health.observe_live({B: 1}, 10.0)
    assert health.standings(10.0 + SUSPECT_S - 1) == {A: ServerStanding.PREFERRED, B: ServerStanding.PREFERRED}
    assert health.next_change(10.0) == 10.0 + SUSPECT_S
    assert health.standings(10.0 + SUSPECT_S) == {B: ServerStanding.PREFERRED}


def test_suspect_leaves_when_a_call_to_it_fails() -> None:
    health = health_of(A, B)
    health.observe_live({B: 1}, 10.0)
    assert health.observe_call(A, UNREACHED, 11.0)
    assert health.standings(11.0) == {B: ServerStanding.PREFERRED}


def test_live_server_that_fails_is_a_backup_for_a_pause_that_doubles() -> None:
    health = health_of(A)
    assert health.observe_call(A, UNREACHED, 10.0)
    assert health.standings(10.0) == {A: ServerStanding.BACKUP}
    assert health.next_change(10.0) == 10.0 + FIRST_PAUSE_S
    assert health.standings(10.0 + FIRST_PAUSE_S) == {A: ServerStanding.PREFERRED}
    assert health.observe_call(A, UNREACHED, 20.0)
    assert health.next_change(20.0) == 20.0 + 2 * FIRST_PAUSE_S


def test_answer_ends_the_pause() -> None:
    health = health_of(A)
    health.observe_call(A, UNREACHED, 10.0)
    assert health.observe_call(A, ANSWERED, 10.1)
    assert health.standings(10.1) == {A: ServerStanding.PREFERRED}
    assert not health.observe_call(A, ANSWERED, 10.2)


def test_server_that_failed_and_then_lost_its_ephemeral_is_gone() -> None:
    health = health_of(A)
    health.observe_call(A, UNREACHED, 10.0)
    health.observe_live({}, 12.0)
    assert health.standings(12.0) == {}


def test_server_that_comes_back_starts_afresh() -> None:
    health = health_of(A)
    health.observe_live({}, 10.0)
    health.observe_call(A, UNREACHED, 11.0)
    health.observe_live({A: 1}, 12.0)
    assert health.standings(12.0) == {A: ServerStanding.PREFERRED}
    assert health.next_change(12.0) is None


def test_new_process_starts_afresh_though_its_ephemeral_was_never_seen_to_be_gone() -> None:
    health = health_of(A)
    for second in range(5):
        health.observe_call(A, UNREACHED, second)
    assert health.standings(5.0) == {A: ServerStanding.BACKUP}
    health.observe_live({A: 1}, 5.0)
    assert health.standings(5.0) == {A: ServerStanding.BACKUP}
    health.observe_live({A: 2}, 5.0)
    assert health.standings(5.0) == {A: ServerStanding.PREFERRED}


def test_late_answer_takes_out_a_suspect_but_not_a_live_server() -> None:
    health = health_of(A, B)
    health.observe_live({B: 1}, 10.0)
    assert health.observe_call(A, LATE, 20.0)
    assert not health.observe_call(B, LATE, 20.0)
    assert health.standings(20.0) == {B: ServerStanding.PREFERRED}
