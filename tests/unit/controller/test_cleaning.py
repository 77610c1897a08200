"""What is out of use goes after its grace period, and nothing else, wherever the controller dies."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied

from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import TASK_LEASE, Replacement
from merlot.cluster.losses import CatalogRecord
from merlot.cluster.manifests import tables
from merlot.cluster.records import LineageState, SegmentRecord, TrashRecord
from merlot.cluster.segments.condemned import PARDON_MS, FileCondemnedError, condemn, guard, pardon
from merlot.cluster.segments.publish import PublishRequest, publish_request
from merlot.cluster.segments.transaction import WriteContext
from merlot.cluster.segments.view import load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.records import SHUFFLE_FOLDER, MergeTaskConfig, TaskRecord
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.cleaning.trash import empty_trash
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.controller.merges.passes import clean_up
from merlot.errors import ConflictError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables
from merlot.testing.clock import FakeClock

TABLE = TableName("t_OFFLINE")
HOUR_S, DAY_S = 3600, 86_400
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema: {fields: [{name: a, type: INT}, {name: d, type: TIMESTAMP, role: dateTime}]}
  timeColumn: d
  retention: 30d
"""


class Files:
    """A deep store that remembers, and tells when somebody looks."""

    def __init__(self, clock: FakeClock) -> None:
        self.files: dict[str, int] = {}
        self.on_look: Callable[[str], None] = lambda url: None
        self._clock = clock

    def upload(self, record: SegmentRecord) -> SegmentRecord:
        self.files[record.url] = self._clock.now_ms()
        return record

    def modified_ms(self, url: str) -> int | None:
        self.on_look(url)
        return self.files.get(url)

    def delete(self, url: str) -> None:
        self.files.pop(url, None)

    def list(self, table: TableName) -> list[str]:
        return sorted(url for url in self.files if f"{table}/{SHUFFLE_FOLDER}/" not in url)

    def list_below(self, table: TableName, folder: str) -> Sequence[str]:
        return sorted(url for url in self.files if f"{table}/{folder}/" in url)

    def path_in(self, table: TableName, url: str) -> str | None:
        return url.partition(f"file:///d/{table}/")[2] or None

    def shuffle(self, entry: str) -> None:
        """What the shards of a task share."""
        for name in ("0.mseg", "0.json", "1.mseg"):
            self.files[f"file:///d/{TABLE}/{SHUFFLE_FOLDER}/{entry}/run/{name}"] = self._clock.now_ms()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacements, "wait_until_loaded", lambda *_: None)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files(clock: FakeClock) -> Files:
    return Files(clock)


@pytest.fixture
def store(store: SqliteMetastore, clock: FakeClock, files: Files) -> SqliteMetastore:
    make_table(store, clock, files)
    return store


def make_table(store: Metastore, clock: FakeClock, files: Files, manifest: str = MANIFEST) -> None:
    tables.put_table(store, load_tables(manifest)[0], clock=clock)
    publish(store, clock, *(files.upload(segment(name, clock)) for name in ("h1", "h2", "other")))


def segment(name: str, clock: FakeClock, crc: int = 1) -> SegmentRecord:
    now_ms = clock.now_ms()
    return SegmentRecord(
        name=name,
        crc=crc,
        size_bytes=1,
        url=f"file:///d/{TABLE}/{name}@{crc}.mseg",
        total_docs=1,
        start_time_ms=now_ms,
        end_time_ms=now_ms,
    )


def publish(store: Metastore, clock: FakeClock, *records: SegmentRecord, replace: tuple[str, ...] = ()) -> None:
    publish_request(
        store,
        TABLE,
        PublishRequest(records=records, replace=replace, replace_rows=True),
        context=WriteContext(clock=clock),
    )


def replace(
    store: Metastore,
    clock: FakeClock,
    files: Files,
    *,
    until: str,
    custom: dict[str, str] | None = None,
    stamps: FakeClock | None = None,
) -> str:
    """A replacement of two segments by one, as far as asked. `stamps`: the clock of whoever replaces them."""
    context = WriteContext(clock=stamps or clock)
    replacement = Replacement(segments_from=("h1", "h2"), segments_to=("day",), custom_map=custom or {}, entry="e")
    entry = replacements.start_replacement(store, TABLE, replacement, context=context)
    replacements.put_outputs(store, TABLE, entry, [files.upload(segment("day", clock))], context=context)
    if until in {"end", "revert"}:
        replacements.end_replacement(store, TABLE, entry, context=context)
    if until == "revert":
        replacements.revert_replacement(store, TABLE, entry, context=context)
    return entry


def loop_of(store: Metastore, files: Files, clock: FakeClock, **config: float) -> ControllerLoop:
    cleaning = CleaningConfig(orphan_scan_s=60, **config)
    return ControllerLoop(
        store, LoopConfig(owner="c", cleaning=cleaning, file_grace_s=HOUR_S), open_files=lambda _: files, clock=clock
    )


def pass_time(loop: ControllerLoop, clock: FakeClock, seconds: float) -> None:
    clock.advance(seconds)
    loop.round()


def names(files: Files) -> set[str]:
    return {url.rpartition("/")[2] for url in files.files}


def test_inputs_of_a_completed_replacement_go_after_four_hours_and_their_files_an_hour_later(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    replace(store, clock, files, until="end")
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, 4 * HOUR_S - 1)
    assert set(load(store, TABLE).segments) == {"h1", "h2", "other", "day"}
    pass_time(loop, clock, 61)
    view = load(store, TABLE)
    assert (set(view.segments), view.lineage) == ({"other", "day"}, {})
    assert names(files) == {"h1@1.mseg", "h2@1.mseg", "other@1.mseg", "day@1.mseg"}
    pass_time(loop, clock, HOUR_S + 61)
    assert names(files) == {"other@1.mseg", "day@1.mseg"}
    loop.close()


def test_inputs_of_a_table_that_is_pushed_as_a_whole_are_kept_for_a_day(
    tmp_path: Path, files: Files, clock: FakeClock
) -> None:
    store = SqliteMetastore(tmp_path / "whole.db")
    make_table(store, clock, files, MANIFEST.replace("retention: 30d", "pushType: REFRESH"))
    replace(store, clock, files, until="end")
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, DAY_S - 61)
    assert "h1" in load(store, TABLE).segments
    pass_time(loop, clock, 122)
    assert "h1" not in load(store, TABLE).segments
    loop.close()
    store.close()


@pytest.mark.parametrize("until", ["put", "revert"])
def test_outputs_of_what_was_reverted_or_abandoned_go_after_a_day(
    until: str, store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    replace(store, clock, files, until=until)
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, DAY_S - 61)
    assert "day" in load(store, TABLE).segments
    pass_time(loop, clock, 122)
    view = load(store, TABLE)
    assert (set(view.segments), view.lineage) == ({"h1", "h2", "other"}, {})
    pass_time(loop, clock, HOUR_S + 61)
    assert names(files) == {"h1@1.mseg", "h2@1.mseg", "other@1.mseg"}
    loop.close()


@pytest.mark.parametrize("years", [-20, 20])
@pytest.mark.parametrize("until", ["end", "revert"])
def test_a_replacement_stamped_by_a_wrong_clock_is_kept_for_its_grace_period_and_no_longer(
    until: str, years: int, store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, 61)
    wrong = FakeClock(clock.now_ms() + round(years * 365 * DAY_S * 1000))
    replace(store, clock, files, until=until, stamps=wrong)
    pass_time(loop, clock, 61)
    grace_s = 4 * HOUR_S if until == "end" else DAY_S
    for _ in range(10):
        pass_time(loop, clock, (grace_s - HOUR_S) / 10)
        assert {"h1", "day"} <= load(store, TABLE).segments.keys(), "it can be reverted, and slow brokers go on with it"
    for _ in range(10):
        pass_time(loop, clock, 0.2 * HOUR_S)
    assert load(store, TABLE).lineage == {}
    loop.close()


def test_a_stamp_within_the_skew_of_clocks_that_are_right_is_believed(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, 61)
    ahead = FakeClock(clock.now_ms() + 30_000)
    replace(store, clock, files, until="end", stamps=ahead)
    pass_time(loop, clock, 1)
    assert load(store, TABLE).lineage["e"].since_ms == ahead.now_ms()
    loop.close()


def test_an_entry_whose_task_runs_is_not_given_up(store: SqliteMetastore, files: Files, clock: FakeClock) -> None:
    lease = Lease.acquire(store, "task-1", "minion", clock)
    assert lease is not None
    replace(store, clock, files, until="put", custom={TASK_LEASE: "task-1"})
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, 3 * DAY_S)
    assert load(store, TABLE).lineage["e"].state is LineageState.IN_PROGRESS
    lease.release(store)
    pass_time(loop, clock, 61)
    assert load(store, TABLE).lineage == {}
    loop.close()


def test_retention_by_time_leaves_what_a_replacement_needs(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    loop = loop_of(store, files, clock, abandoned_s=365 * DAY_S, replaced_s=365 * DAY_S)
    replace(store, clock, files, until="put")
    pass_time(loop, clock, 31 * DAY_S)
    assert set(load(store, TABLE).segments) == {"h1", "h2", "day"}
    replacements.end_replacement(store, TABLE, "e", context=WriteContext(clock=clock))
    pass_time(loop, clock, 61)
    assert set(load(store, TABLE).segments) == {"h1", "h2"}
    loop.close()


def test_a_suspended_table_is_left_alone(store: SqliteMetastore, files: Files, clock: FakeClock) -> None:
    replace(store, clock, files, until="end")
    suspended = MANIFEST.replace("  retention: 30d", "  retention: 30d\n  suspend: true")
    tables.put_table(store, load_tables(suspended)[0], clock=clock)
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, 2 * DAY_S)
    assert "h1" in load(store, TABLE).segments
    loop.close()


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_a_controller_that_dies_at_any_write_of_the_cleaning_leaves_a_table_that_the_next_one_cleans(
    fault: Fault, tmp_path: Path
) -> None:
    for at in itertools.count():
        clock = FakeClock()
        files = Files(clock)
        store = SqliteMetastore(tmp_path / f"{at}.db")
        make_table(store, clock, files)
        replace(store, clock, files, until="end")
        files.upload(segment("orphan", clock))
        files.shuffle("e")
        clock.advance(DAY_S + 1)
        faulty = FaultyMetastore(store.session(), fault, at)
        first = loop_of(faulty, files, clock)
        for _ in range(3):
            with contextlib.suppress(ProcessDied, MerlotError):
                pass_time(first, clock, HOUR_S + 61)
            assert set(load(store, TABLE).visible) == {"day", "other"}
            assert {"day@1.mseg", "other@1.mseg"} <= names(files)
        for pulse in store.children(paths.lease("controller")):
            store.delete(paths.child(paths.lease("controller"), pulse))
        second = loop_of(store, files, clock)
        for _ in range(4):
            pass_time(second, clock, HOUR_S + 61)
        assert set(load(store, TABLE).segments) == {"day", "other"}
        assert names(files) == {"day@1.mseg", "other@1.mseg"}
        assert store.children(paths.trash(TABLE)) == store.children(paths.lineage(TABLE)) == []
        second.close()
        store.close()
        if faulty.num_writes <= at:
            break
    assert at > 5


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER], ids=lambda fault: fault.name)
def test_a_controller_cleans_after_any_write_of_its_own_was_not_answered(fault: Fault, tmp_path: Path) -> None:
    for at in itertools.count():
        clock = FakeClock()
        files = Files(clock)
        store = SqliteMetastore(tmp_path / f"{at}.db")
        make_table(store, clock, files)
        replace(store, clock, files, until="end")
        files.upload(segment("orphan", clock))
        clock.advance(DAY_S + 1)
        faulty = FaultyMetastore(store, fault, at)
        loop = loop_of(faulty, files, clock)
        for _ in range(8):
            pass_time(loop, clock, HOUR_S + 61)
        assert set(load(store, TABLE).segments) == {"day", "other"}
        assert names(files) == {"day@1.mseg", "other@1.mseg"}
        assert store.children(paths.trash(TABLE)) == store.children(paths.lineage(TABLE)) == []
        loop.close()
        store.close()
        if faulty.num_writes <= at:
            break
    assert at > 5


def test_files_that_nobody_names_go_after_a_day_but_not_those_somebody_is_about_to_name(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    context = WriteContext(clock=clock)
    replacement = Replacement(segments_from=("h1",), segments_to=("awaited",), entry="e")
    replacements.start_replacement(store, TABLE, replacement, context=context)
    for name in ("awaited", "orphan"):
        files.upload(segment(name, clock))
    loop = loop_of(store, files, clock, abandoned_s=30 * DAY_S)
    pass_time(loop, clock, DAY_S - 61)
    files.upload(segment("young", clock))
    pass_time(loop, clock, 122)
    pass_time(loop, clock, HOUR_S + 61)
    assert names(files) == {"h1@1.mseg", "h2@1.mseg", "other@1.mseg", "awaited@1.mseg", "young@1.mseg"}
    loop.close()


def test_the_file_of_a_segment_that_came_back_and_was_removed_again_stays_for_another_grace_period(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, 61)
    publish(store, clock, replace=("other",))
    pass_time(loop, clock, HOUR_S - 120)
    publish(store, clock, segment("other", clock))
    publish(store, clock, replace=("other",))
    pass_time(loop, clock, HOUR_S - 120)
    assert "other@1.mseg" in names(files)
    pass_time(loop, clock, 240)
    assert "other@1.mseg" not in names(files)
    assert store.children(paths.trash(TABLE)) == []
    loop.close()


def test_what_shards_left_goes_after_a_day_unless_a_task_or_a_replacement_may_go_on(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    replacement = Replacement(segments_from=("h1",), segments_to=("awaited",), entry="under-way")
    replacements.start_replacement(store, TABLE, replacement, context=WriteContext(clock=clock))
    queue_merge(store, "queued", output_prefix="merged_1")
    for entry in ("under-way", "queued", "gone"):
        files.shuffle(entry)
    for name in ("merged_1_s0_t_1_2_0", "merged_10_s0_t_1_2_0"):
        files.upload(segment(name, clock))
    loop = loop_of(store, files, clock, abandoned_s=30 * DAY_S)
    pass_time(loop, clock, DAY_S - 61)
    assert len(files.files) == 3 + 9 + 2
    files.shuffle("young")
    pass_time(loop, clock, 122)
    pass_time(loop, clock, HOUR_S + 61)
    assert {url.split("/")[-3 if SHUFFLE_FOLDER in url else -2] for url in files.files} == {
        str(TABLE),
        "under-way",
        "queued",
        "young",
    }
    assert {"merged_1_s0_t_1_2_0@1.mseg"} == {name for name in names(files) if name.startswith("merged")}
    assert len(files.files) == 3 + 9 + 1
    loop.close()


def test_what_shards_write_again_while_it_is_in_the_trash_stays(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    files.shuffle("e")
    loop = loop_of(store, files, clock)
    pass_time(loop, clock, DAY_S + 61)
    assert store.children(paths.trash(TABLE)) != []
    clock.advance(1)
    files.shuffle("e")
    queue_merge(store, "e", output_prefix="merged_1")
    pass_time(loop, clock, HOUR_S + 61)
    pass_time(loop, clock, HOUR_S + 61)
    assert sum(SHUFFLE_FOLDER in url for url in files.files) == 3
    loop.close()


def queue_merge(store: Metastore, entry: str, *, output_prefix: str) -> None:
    config = MergeTaskConfig(
        rollup="t",
        level="day",
        level_index=0,
        bucket_period="1d",
        windows=((0, 1),),
        inputs=("h1@1",),
        entry=entry,
        output_prefix=output_prefix,
        num_shards=2,
        shard=1,
    )
    task = TaskRecord(
        id=f"task-{entry}", kind=queue.MERGE_ROLLUP, table=TABLE, created_ms=1, config=queue.config_json(config)
    )
    store.create(paths.task(task.kind, task.id), task.to_bytes())


def test_a_file_that_is_published_while_it_is_being_deleted_is_refused_or_kept(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    """Published at each look of the cleaner at the file: never is a record left without its file."""
    for at_look in range(4):
        publish(store, clock, replace=("other",))
        clock.advance(HOUR_S + 61)
        looks = itertools.count()
        refused: list[str] = []

        def look(url: str, looks: Iterator[int] = looks, at_look: int = at_look, refused: list[str] = refused) -> None:
            if next(looks) == at_look:
                try:
                    publish(store, clock, segment("other", clock))
                except FileCondemnedError as error:
                    refused.append(str(error))

        files.on_look = look
        empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
        files.on_look = lambda url: None
        is_there = segment("other", clock).url in files.files
        assert ("other" in load(store, TABLE).segments) == (is_there and not refused and at_look < 2)
        if not is_there:
            assert at_look > 0
            files.upload(segment("other", clock))
        empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
        publish(store, clock, segment("other", clock))
        assert segment("other", clock).url in files.files


def test_condemned_files_cannot_be_named_until_they_are_pardoned(store: SqliteMetastore, clock: FakeClock) -> None:
    new = segment("new", clock)
    check = guard(store, TABLE, [new.url])
    condemn(store, TABLE, [new.url], by="c", now_ms=clock.now_ms())
    condemn(store, TABLE, [new.url], by="c", now_ms=clock.now_ms())
    with pytest.raises(MerlotError):
        store.multi([check])
    with pytest.raises(FileCondemnedError, match="publish in a minute"):
        publish(store, clock, new)
    with pytest.raises(ConflictError, match="another cleaner may be deleting files"):
        condemn(store, TABLE, ["file:///d/x"], by="other", now_ms=clock.now_ms())
    pardon(store, TABLE, by="other", now_ms=clock.now_ms() + PARDON_MS - 1)
    with pytest.raises(FileCondemnedError):
        publish(store, clock, new)
    pardon(store, TABLE, by="c", now_ms=clock.now_ms())
    publish(store, clock, new)


def test_what_was_deleted_may_be_published_again_at_once_though_its_controller_is_gone(
    store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    """The last Table of a namespace takes the controller along: the next one is another cleaner."""
    tables.delete_table(store, "t", files=tables.Files.NOW)
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000, cleaner="gone")
    assert (names(files), tables.files_left(store, "t")) == (set(), None)
    make_table(store, clock, files)
    assert set(load(store, TABLE).segments) == {"h1", "h2", "other"}


def test_what_may_still_be_deleted_stays_condemned(store: SqliteMetastore, files: Files, clock: FakeClock) -> None:
    """A deletion that failed may be carried out later."""
    publish(store, clock, replace=("h1",))

    def fail(_: str) -> None:
        raise UnavailableError("no answer")

    clock.advance(HOUR_S + 61)
    files.delete = fail  # type: ignore[method-assign]
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000, cleaner="gone")
    with pytest.raises(FileCondemnedError):
        publish(store, clock, segment("h1", clock))


@pytest.mark.parametrize("frozen_s", [0, 250, 301, 400, 601, 5000])
def test_a_cleaner_that_is_frozen_while_it_deletes_takes_nothing_that_was_published_meanwhile(
    frozen_s: int, store: SqliteMetastore, files: Files, clock: FakeClock
) -> None:
    """It has looked at a file, and deletes it when it wakes; meanwhile another one leads, and the file comes again."""
    names = ("h1", "h2")
    urls = [segment(name, clock).url for name in names]
    publish(store, clock, replace=names)
    clock.advance(HOUR_S + 61)
    num_looks = 0
    look = files.modified_ms
    others = Files(clock)
    others.files = files.files

    def frozen(url: str) -> int | None:
        nonlocal num_looks
        seen = look(url)
        num_looks += 1
        if num_looks == len(names) + 1:  # the first look after both were condemned
            clock.advance(frozen_s)
            for _ in range(2):  # the second pass pardons what the first one has deleted
                empty_trash(store, lambda _: others, clock, grace_ms=HOUR_S * 1000, cleaner="another")
            for name, url in zip(names, urls, strict=True):
                with contextlib.suppress(FileCondemnedError):
                    publish(store, clock, files.upload(segment(name, clock).model_copy(update={"url": url})))
        return seen

    files.modified_ms = frozen  # type: ignore[method-assign]
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000, cleaner="frozen")
    assert num_looks > len(names)
    assert {record.url for record in load(store, TABLE).segments.values()} <= files.files.keys()


@pytest.mark.parametrize(
    ("fate", "num_deleted", "num_left"),
    [(tables.Files.KEEP, 0, 3), (tables.Files.NOW, 3, 0), (tables.Files.LATER, 0, 3)],
)
def test_files_of_a_deleted_table_stay_go_at_once_or_later(
    store: SqliteMetastore, clock: FakeClock, files: Files, fate: tables.Files, num_deleted: int, num_left: int
) -> None:
    clock.advance(1)
    tables.delete_table(store, "t", files=fate, clock=clock)
    assert (tables.files_left(store, "t") is None) == (fate is not tables.Files.NOW)
    assert empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000) == num_deleted
    assert len(files.files) == num_left
    assert tables.files_left(store, "t") is None


def test_what_was_never_published_goes_with_a_deleted_table(
    store: SqliteMetastore, clock: FakeClock, files: Files
) -> None:
    files.upload(segment("unpublished", clock))
    clock.advance(1)
    tables.delete_table(store, "t", files=tables.Files.NOW, clock=clock)
    assert empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000) == 4
    assert files.files == {}


@pytest.mark.parametrize(
    ("fate", "num_at_once", "num_later"),
    [(tables.Files.NOW, 1, 0), (tables.Files.LATER, 0, 1), (tables.Files.KEEP, 0, 0)],
)
def test_what_a_table_without_segments_leaves_goes_as_asked(
    store: SqliteMetastore, clock: FakeClock, files: Files, fate: tables.Files, num_at_once: int, num_later: int
) -> None:
    publish(store, clock, replace=("h1", "h2", "other"))
    clock.advance(HOUR_S + 1)
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
    files.upload(segment("unpublished", clock))
    clock.advance(1)
    tables.delete_table(store, "t", files=fate, clock=clock)
    assert (tables.files_left(store, "t") is not None) == bool(num_at_once)
    assert empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000) == num_at_once
    assert tables.files_left(store, "t") is None
    clock.advance(HOUR_S + 1)
    assert empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000) == num_later


def test_why_files_of_a_deleted_table_stay_is_told(store: SqliteMetastore, clock: FakeClock, files: Files) -> None:
    def refuse(_: str | None) -> Files:
        raise UnavailableError("the keys were revoked")

    clock.advance(1)
    tables.delete_table(store, "t", files=tables.Files.NOW, clock=clock)
    assert empty_trash(store, refuse, clock, grace_ms=0) == 0
    left = tables.files_left(store, "t")
    assert left is not None
    assert (left.num_files, left.error) == (3, "the keys were revoked")
    assert empty_trash(store, lambda _: files, clock, grace_ms=0) == 3
    assert tables.files_left(store, "t") is None


class CatalogFiles(Files):
    """A deep store whose catalogs are all damaged, until somebody deletes them."""

    catalog: bytes | None = b"damaged"

    def url_below(self, table: TableName, *names: str) -> str:
        return "/".join([f"file:///d/{table}", *names])

    def put(self, source: Path, url: str) -> None:
        raise NotImplementedError

    def read(self, url: str, verify: Callable[[bytes], CatalogRecord]) -> CatalogRecord:
        if self.catalog is None:
            raise NotFoundError(f"file does not exist url={url}")
        return verify(self.catalog)


def test_a_damaged_catalog_of_a_deleted_table_keeps_its_files_and_no_others(
    store: SqliteMetastore, clock: FakeClock
) -> None:
    files = CatalogFiles(clock)
    files.upload(segment("unpublished", clock))
    later, url = TableName("u_OFFLINE"), "file:///d/u_OFFLINE/gone@1.mseg"
    files.files[url] = clock.now_ms()
    record = TrashRecord(deleted_ms=clock.now_ms(), urls=(url,))
    store.create(paths.child(paths.trash(later), "gone"), record.to_bytes())
    clock.advance(1)
    tables.delete_table(store, "t", files=tables.Files.NOW, clock=clock)
    clock.advance(HOUR_S + 1)
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
    assert names(files) == {"unpublished@1.mseg"}
    left = tables.files_left(store, "t")
    assert left is not None
    assert "delete its file by hand" in left.error
    assert "_catalog/segments.json.z" in left.error
    files.catalog = None
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
    assert names(files) == set()
    assert tables.files_left(store, "t") is None


def test_damaged_marks_of_condemned_files_hold_up_no_other_table(
    store: SqliteMetastore, clock: FakeClock, files: Files
) -> None:
    store.create(paths.condemned(TableName("damaged_OFFLINE")), b"damaged")
    clock.advance(1)
    tables.delete_table(store, "t", files=tables.Files.NOW, clock=clock)
    assert empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000) == 3


@pytest.mark.parametrize("fate", [tables.Files.NOW, tables.Files.LATER])
def test_what_is_uploaded_after_the_deletion_of_its_table_goes_too(
    store: SqliteMetastore, clock: FakeClock, files: Files, fate: tables.Files
) -> None:
    queue_merge(store, "e", output_prefix="merged_1")
    clock.advance(1)
    tables.delete_table(store, "t", files=fate, clock=clock)
    clock.advance(HOUR_S)
    files.upload(segment("merged_1_s0", clock))
    files.shuffle("e")
    empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
    assert len(files.files) == 4, "its task may upload more"
    assert (tables.files_left(store, "t") is not None) == (fate is tables.Files.NOW)
    for name in store.children(paths.tasks(queue.MERGE_ROLLUP)):
        store.delete(paths.task(queue.MERGE_ROLLUP, name))
    for _ in range(3):
        clock.advance(HOUR_S + 1)
        empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000)
    assert files.files == {}
    assert store.children(paths.trash(TABLE)) == []


def test_a_task_of_a_table_that_is_gone_ends_without_a_minion(store: SqliteMetastore, clock: FakeClock) -> None:
    for entry in ("waits", "runs"):
        queue_merge(store, entry, output_prefix="merged_1")
    lease = Lease.acquire(store, queue.lease_name(queue.MERGE_ROLLUP, "task-runs"), "minion", clock)
    assert lease is not None
    clean_up(store, {}, None)
    assert len(queue.list_tasks(store, queue.MERGE_ROLLUP)) == 2
    tables.delete_table(store, "t", clock=clock)
    clean_up(store, {}, None)
    assert set(queue.list_tasks(store, queue.MERGE_ROLLUP)) == {"task-runs"}
    lease.release(store)
    clean_up(store, {}, None)
    assert queue.list_tasks(store, queue.MERGE_ROLLUP) == {}


def test_what_shards_of_a_deleted_table_left_goes_with_its_files(
    store: SqliteMetastore, clock: FakeClock, files: Files
) -> None:
    files.shuffle("e")
    clock.advance(HOUR_S + 1)
    assert empty_trash(store, lambda _: files, clock, grace_ms=0) == 0
    tables.delete_table(store, "t", files=tables.Files.NOW, clock=clock)
    assert empty_trash(store, lambda _: files, clock, grace_ms=HOUR_S * 1000) == 6
    assert files.files == {}
