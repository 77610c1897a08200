"""A broker does not believe a metastore that knows less of a table than it did, until a controller has judged it."""

from merlot.broker.setbacks import DOUBT_S, Setbacks
from merlot.testing.clock import FakeClock

CREATED_MS = 1000


def test_an_older_root_is_not_believed_until_a_controller_has_marked_the_table() -> None:
    setbacks = Setbacks(FakeClock())
    assert not setbacks.is_behind(CREATED_MS, 7, is_marked=False)
    assert not setbacks.is_behind(CREATED_MS, 7, is_marked=False)
    assert setbacks.is_behind(CREATED_MS, 6, is_marked=False)
    assert setbacks.is_behind(CREATED_MS - 1, 9, is_marked=False), "a table of that name from before"
    assert not setbacks.is_behind(CREATED_MS, 6, is_marked=True), "the mark says more"
    assert not setbacks.is_behind(CREATED_MS, 6, is_marked=False), "it is recovered"


def test_a_table_that_is_newer_again_is_believed_and_so_is_one_that_was_made_anew() -> None:
    setbacks = Setbacks(FakeClock())
    setbacks.is_behind(CREATED_MS, 7, is_marked=False)
    assert setbacks.is_behind(CREATED_MS, 6, is_marked=False)
    assert not setbacks.is_behind(CREATED_MS, 8, is_marked=False)
    assert not setbacks.is_behind(CREATED_MS + 1, 1, is_marked=False)
    setbacks.forget()
    assert not setbacks.is_behind(CREATED_MS - 1, 1, is_marked=False)


def test_the_doubt_ends_where_no_controller_ever_objects() -> None:
    clock = FakeClock()
    setbacks = Setbacks(clock)
    setbacks.is_behind(CREATED_MS, 7, is_marked=False)
    assert setbacks.is_behind(CREATED_MS, 6, is_marked=False)
    clock.advance(DOUBT_S - 1)
    assert setbacks.is_behind(CREATED_MS, 6, is_marked=False)
    clock.advance(1)
    assert not setbacks.is_behind(CREATED_MS, 6, is_marked=False)
    assert not setbacks.is_behind(CREATED_MS, 6, is_marked=False)
