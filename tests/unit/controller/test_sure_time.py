"""Nothing is deleted because a clock says so: not by one that jumps, however often, for as long as it is not wrong for
long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.budget import count
from tests.support.faults import Fault, FaultyMetastore
from tests.unit.controller.test_cleaning import DAY_S, HOUR_S, MANIFEST, TABLE, Files, names, publish, segment

from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import Replacement
from merlot.cluster.manifests import tables
from merlot.cluster.segments.transaction import WriteContext
from merlot.cluster.segments.view import load
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.cleaning.sure_time import Mark, SureClock, followed
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.metastore.protocol import MetastoreSilentError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables
from merlot.testing.clock import FakeClock

YEARS_MS = 20 * 365 * DAY_S * 1000
NUM_SEEDS = count("MERLOT_CLOCKS", quick=8, every=60, fuzz=5000)
EAGER = CleaningConfig(replaced_s=30 * DAY_S, abandoned_s=30 * DAY_S, orphan_s=30 * DAY_S, orphan_scan_s=0)


class JumpingClock(FakeClock):
    """Its wall time is off by as much as somebody says; its monotonic time is right."""

    off_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.off_ms

    @property
    def true_ms(self) -> int:
        return super().now_ms()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacements, "wait_until_loaded", lambda *_: None)


times = st.integers(-YEARS_MS, YEARS_MS)


@given(st.lists(st.tuples(times, st.integers(0, 10**6))))
def test_the_mark_goes_at_most_twice_as_fast_as_time_and_back_at_most_as_fast(steps: list[tuple[int, int]]) -> None:
    mark = Mark(0, 0.0)
    for wall_ms, passed_s in steps:
        after = followed(mark, wall_ms, mark.at_s + passed_s)
        assert -1000 * passed_s <= after.mark_ms - mark.mark_ms <= 2000 * passed_s
        assert abs(wall_ms - after.mark_ms) <= max(0, abs(wall_ms - mark.mark_ms) - 1000 * passed_s) or passed_s == 0
        mark = after


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_a_clock_that_jumps_by_twenty_years_again_and_again_costs_no_row_and_no_file(tmp_path: Path, seed: int) -> None:
    """A day of rounds each minute, with publications, a replacement that is done and one that is left alone, a file
    nobody has named yet, a segment somebody removed, and controllers that take over. Everything is far from its age."""
    draw = random.Random(seed)
    clock = JumpingClock()
    files = Files(clock)
    store = SqliteMetastore(tmp_path / "meta.db")
    loop = _loop(store, files, clock)
    tables.put_table(store, load_tables(MANIFEST)[0], clock=clock)
    loop.round()
    uploaded: set[str] = set()
    shown: set[str] = set()
    jump_ends_s = 0.0
    for step in range(120):
        if clock.monotonic() >= jump_ends_s:
            clock.off_ms = draw.choice((0, 0, YEARS_MS, -YEARS_MS, draw.randrange(-YEARS_MS, YEARS_MS)))
            jump_ends_s = clock.monotonic() + draw.choice((0, 35, 600, 3600))
        match draw.choice(("publish", "orphan", "replace", "abandon", "remove", "restart", "pass", "pass", "pass")):
            case "publish":
                uploaded |= _publish(store, files, clock, f"s{step}")
                shown.add(f"s{step}")
            case "orphan":
                files.upload(segment(f"o{step}", clock))
                uploaded.add(f"o{step}@1.mseg")
            case "replace" | "abandon" as how if shown:
                inputs = tuple(draw.sample(sorted(shown), 1))
                if _replace(store, files, clock, inputs, f"r{step}", is_done=how == "replace"):
                    shown -= set(inputs) if how == "replace" else set()
                    shown |= {f"r{step}"} if how == "replace" else set()
                uploaded |= {f"r{step}@1.mseg"} & names(files)
            case "remove" if len(shown) > 1:
                gone = draw.choice(sorted(shown))
                if not load(store, TABLE).segments[gone].replaced_by:
                    publish(store, clock, replace=(gone,))
                    shown.discard(gone)
            case "restart":
                loop.close()
                loop = _loop(store, files, clock)
        clock.advance(draw.choice((1, 61, 600)))
        loop.round()
        view = load(store, TABLE)
        assert set(view.visible) == shown
        assert names(files) == uploaded
    loop.close()
    store.close()


def test_what_is_old_goes_once_time_has_surely_passed(tmp_path: Path) -> None:
    """Also after a jump, and with stamps of a clock that was wrong."""
    clock = JumpingClock()
    files = Files(clock)
    store = SqliteMetastore(tmp_path / "meta.db")
    loop = _loop(store, files, clock)
    tables.put_table(store, load_tables(MANIFEST)[0], clock=clock)
    for name in ("a", "b", "c"):
        _publish(store, files, clock, name)
    loop.round()
    clock.off_ms = -YEARS_MS
    publish(store, clock, replace=("a",))
    loop.round()
    clock.off_ms = 0
    _pass(loop, clock, 6 * DAY_S)
    assert names(files) == {"a@1.mseg", "b@1.mseg", "c@1.mseg"}, "its list was stamped by a clock twenty years behind"
    clock.off_ms = YEARS_MS
    _pass(loop, clock, 61)
    clock.off_ms = 0
    publish(store, clock, replace=("b",))
    _pass(loop, clock, 6 * DAY_S)
    assert "b@1.mseg" in names(files)
    _pass(loop, clock, 2 * DAY_S)
    assert "b@1.mseg" not in names(files)
    assert set(load(store, TABLE).visible) == {"c"}
    _pass(loop, clock, 31 * DAY_S)
    assert set(load(store, TABLE).visible) == set(), "retention is thirty days"
    loop.close()
    store.close()


def test_time_without_a_controller_is_made_up_for(tmp_path: Path) -> None:
    clock = JumpingClock()
    store = SqliteMetastore(tmp_path / "meta.db")
    first = _loop(store, Files(clock), clock)
    first.round()
    first.close()
    clock.advance(5 * DAY_S)
    second = _loop(store, Files(clock), clock)
    second.round()
    node = store.get(paths.SURE_TIME)
    assert node is not None
    assert int(node.data) < clock.true_ms - 4 * DAY_S * 1000, "nobody was there to say that it passed"
    _pass(second, clock, 6 * DAY_S)
    node = store.get(paths.SURE_TIME)
    assert node is not None
    assert int(node.data) == clock.true_ms
    second.close()
    store.close()


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER], ids=lambda fault: fault.name)
@pytest.mark.parametrize("write", [0, 1, 2], ids=["first mark", "first time", "pass"])
def test_a_mark_whose_write_is_not_answered_is_written_later(store: SqliteMetastore, fault: Fault, write: int) -> None:
    clock = FakeClock()
    lease = Lease.acquire(store, "controller", "c", clock)
    assert lease is not None
    sure = SureClock(FaultyMetastore(store, fault, write), clock)

    def begin_pass() -> None:
        sure.lead(lease)
        sure.begin_pass(lease.fence)

    with pytest.raises(MetastoreSilentError):
        begin_pass()
    for _ in range(3):
        clock.advance(60)
        begin_pass()
    node = store.get(paths.SURE_TIME)
    assert node is not None
    assert int(node.data) == clock.now_ms()


def _loop(store: SqliteMetastore, files: Files, clock: FakeClock) -> ControllerLoop:
    return ControllerLoop(store, LoopConfig(owner="c", cleaning=EAGER), open_files=lambda _: files, clock=clock)


def _pass(loop: ControllerLoop, clock: FakeClock, seconds: float) -> None:
    while seconds > 0:
        clock.advance(min(HOUR_S, seconds))
        seconds -= HOUR_S
        loop.round()


def _publish(store: SqliteMetastore, files: Files, clock: JumpingClock, name: str) -> set[str]:
    """With rows of now, whatever the clock says."""
    off_ms, clock.off_ms = clock.off_ms, 0
    record = files.upload(segment(name, clock))
    clock.off_ms = off_ms
    publish(store, clock, record)
    return {f"{name}@1.mseg"}


def _replace(
    store: SqliteMetastore, files: Files, clock: JumpingClock, inputs: tuple[str, ...], output: str, *, is_done: bool
) -> bool:
    context = WriteContext(clock=clock)
    view = load(store, TABLE)
    if any(view.segments[one].replaced_by for one in inputs):
        return False
    entry = replacements.start_replacement(
        store, TABLE, Replacement(segments_from=inputs, segments_to=(output,), entry=output), context=context
    )
    off_ms, clock.off_ms = clock.off_ms, 0
    record = files.upload(segment(output, clock))
    clock.off_ms = off_ms
    replacements.put_outputs(store, TABLE, entry, [record], context=context)
    if is_done:
        replacements.end_replacement(store, TABLE, entry, context=context)
    return True
