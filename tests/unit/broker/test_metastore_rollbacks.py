"""A broker does not believe a metastore that knows less of a table than it did, until a controller has judged it."""

from merlot.broker.metastore_rollbacks import DOUBT_S, RollbackDetector
from merlot.testing.clock import FakeClock

CREATED_MS = 1000


def test_an_older_root_is_not_believed_until_a_controller_has_marked_the_table() -> None:
    detector = RollbackDetector(FakeClock())
    assert not detector.is_behind(CREATED_MS, 7, is_marked=False)
    assert not detector.is_behind(CREATED_MS, 7, is_marked=False)
    assert detector.is_behind(CREATED_MS, 6, is_marked=False)
    assert detector.is_behind(CREATED_MS - 1, 9, is_marked=False), "a table of that name from before"
    assert not detector.is_behind(CREATED_MS, 6, is_marked=True), "the mark says more"
    assert not detector.is_behind(CREATED_MS, 6, is_marked=False), "it is recovered"


def test_a_table_that_is_newer_again_is_believed_and_so_is_one_that_was_made_anew() -> None:
    detector = RollbackDetector(FakeClock())
    detector.is_behind(CREATED_MS, 7, is_marked=False)
    assert detector.is_behind(CREATED_MS, 6, is_marked=False)
    assert not detector.is_behind(CREATED_MS, 8, is_marked=False)
    assert not detector.is_behind(CREATED_MS + 1, 1, is_marked=False)
    detector.forget()
    assert not detector.is_behind(CREATED_MS - 1, 1, is_marked=False)


def test_the_doubt_ends_where_no_controller_ever_objects() -> None:
    clock = FakeClock()
    detector = RollbackDetector(clock)
    detector.is_behind(CREATED_MS, 7, is_marked=False)
    assert detector.is_behind(CREATED_MS, 6, is_marked=False)
    clock.advance(DOUBT_S - 1)
    assert detector.is_behind(CREATED_MS, 6, is_marked=False)
    clock.advance(1)
    assert not detector.is_behind(CREATED_MS, 6, is_marked=False)
    assert not detector.is_behind(CREATED_MS, 6, is_marked=False)
