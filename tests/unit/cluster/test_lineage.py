"""Replacements of segments: all inputs or all outputs are the table, whatever happens, wherever a writer dies."""

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied

from merlot.cluster import paths
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import EndOptions, Replacement
from merlot.cluster.manifests import tables
from merlot.cluster.records import InstanceRecord, LineageMark, LineageState, Role, RootRecord, SegmentRecord
from merlot.cluster.segments import commit, lineage_nodes, lineage_rules
from merlot.cluster.segments.mutations import TooManyReplacementsError
from merlot.cluster.segments.publish import PublishRequest, publish, publish_request
from merlot.cluster.segments.transaction import Assign, ForgetReplacement, PreconditionError, mutate, sweep
from merlot.cluster.segments.view import TableView, load
from merlot.errors import ConflictError, InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import InstanceId, SegmentKey, SegmentName, TableName
from merlot.metastore.protocol import Check, Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables

TABLE = TableName("t_OFFLINE")
SERVER = InstanceId("Server_host_1")
MANIFEST = load_tables("""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {schema: {fields: [{name: a, type: INT}]}}
""")[0]


def segment(name: str, crc: int = 1, docs: int = 10) -> SegmentRecord:
    return SegmentRecord(name=name, crc=crc, size_bytes=1, url=f"file:///d/{name}@{crc}", total_docs=docs)


def make_store(folder: Path) -> SqliteMetastore:
    store = SqliteMetastore(folder / "meta.db")
    tables.put_table(store, MANIFEST)
    publish(store, TABLE, [segment("h1"), segment("h2"), segment("other")])
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    store = make_store(tmp_path)
    yield store
    store.close()


HOURS = Replacement(segments_from=("h1", "h2"), segments_to=("day",), entry="e")


def start(store: Metastore, replacement: Replacement = HOURS) -> str:
    return replacements.start_replacement(store, TABLE, replacement)


def put(store: Metastore, *names: str, entry: str = "e", docs: int = 20) -> None:
    replacements.put_outputs(store, TABLE, entry, [segment(name, docs=docs) for name in names or ("day",)])


def end(store: Metastore, entry: str = "e") -> None:
    replacements.end_replacement(store, TABLE, entry)


def revert(store: Metastore, entry: str = "e") -> None:
    replacements.revert_replacement(store, TABLE, entry)


def forget(store: Metastore, entry: str = "e") -> None:
    mutate(store, TABLE, lambda _: [ForgetReplacement(entry)])


def visible(store: Metastore) -> set[str]:
    return set(load(store, TABLE).visible)


@pytest.mark.usefixtures("outputs_are_loaded")
def test_inputs_are_the_table_until_the_end_and_outputs_from_then_on(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    assert visible(store) == {"h1", "h2", "other"}
    assert load(store, TABLE).total_docs == 30
    end(store)
    assert visible(store) == {"day", "other"}
    assert (load(store, TABLE).total_docs, load(store, TABLE).size_bytes) == (30, 2)
    forget(store)
    view = load(store, TABLE)
    assert (set(view.segments), view.lineage) == ({"day", "other"}, {})
    assert view.segments["day"].replaces == ""
    assert store.children(paths.lineage(TABLE)) == []


@pytest.mark.usefixtures("outputs_are_loaded")
def test_reversal_brings_the_inputs_back_and_cleaning_leaves_them_unmarked(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    end(store)
    revert(store)
    assert visible(store) == {"h1", "h2", "other"}
    assert "day" in load(store, TABLE).segments
    forget(store)
    view = load(store, TABLE)
    assert set(view.segments) == {"h1", "h2", "other"}
    assert all(not record.replaced_by for record in view.segments.values())


def test_reversal_of_what_has_not_ended_removes_its_outputs_at_once(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    revert(store)
    assert set(load(store, TABLE).segments) == {"h1", "h2", "other"}
    assert len(store.children(paths.trash(TABLE))) == 1


@pytest.mark.usefixtures("outputs_are_loaded")
def test_each_step_may_be_repeated_and_writes_nothing_then(store: SqliteMetastore) -> None:
    for step in (start, put, end):
        step(store)
        epoch = load(store, TABLE).epoch
        step(store)
        assert load(store, TABLE).epoch == epoch
    assert start(store) == "e"
    put(store)
    revert(store)
    epoch = load(store, TABLE).epoch
    revert(store)
    assert load(store, TABLE).epoch == epoch


@pytest.mark.usefixtures("outputs_are_loaded")
def test_a_reverted_entry_may_be_started_anew_under_its_id(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    end(store)
    revert(store)
    start(store)
    assert load(store, TABLE).lineage["e"].state is LineageState.IN_PROGRESS
    assert "day" not in load(store, TABLE).segments
    put(store)
    end(store)
    assert visible(store) == {"day", "other"}


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (Replacement(segments_from=("gone",), segments_to=("day",)), "does not exist"),
        (Replacement(segments_from=("h1",), segments_to=("other",)), "exists already"),
        (Replacement(segments_from=(), segments_to=()), "neither inputs nor outputs"),
        (Replacement(segments_from=("h1",), segments_to=("h1",)), "both inputs and outputs"),
        (Replacement(segments_from=(SegmentKey(SegmentName("h1"), 7),), segments_to=("day",)), "has changed"),
        (Replacement(segments_from=("h1",), segments_to=("day",), entry="first"), "of other segments"),
        (Replacement(segments_from=("h2", "other"), segments_to=("day",)), "another replacement under way"),
        (Replacement(segments_from=("h1", "h1"), segments_to=("day",)), "named twice"),
        (Replacement(segments_from=("h1",), segments_to=("day",), entry="a/b"), "entry id must be"),
    ],
)
def test_a_start_is_refused_in_words(store: SqliteMetastore, replacement: Replacement, message: str) -> None:
    start(store, Replacement(segments_from=("h2",), segments_to=("x",), entry="first"))
    before = load(store, TABLE)
    with pytest.raises((PreconditionError, InvalidInputError), match=message):
        start(store, replacement)
    assert load(store, TABLE).epoch == before.epoch


@pytest.mark.usefixtures("outputs_are_loaded")
def test_an_end_needs_its_outputs_and_its_inputs_as_they_were(store: SqliteMetastore) -> None:
    start(store)
    with pytest.raises(PreconditionError, match="outputs are missing"):
        end(store)
    put(store)
    publish(store, TABLE, [segment("h1", crc=2)])
    with pytest.raises(PreconditionError, match="inputs were replaced or removed since"):
        end(store)
    assert visible(store) == {"h1", "h2", "other"}
    revert(store)
    with pytest.raises(PreconditionError, match="was reverted"):
        end(store)
    with pytest.raises(NotFoundError, match="does not exist"):
        end(store, "never")


@pytest.mark.usefixtures("outputs_are_loaded")
def test_users_cannot_remove_what_a_replacement_needs(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    for name in ("h1", "day"):
        with pytest.raises(PreconditionError, match=r"replacement under way.*end or revert the entry first"):
            publish(store, TABLE, [], replace=[name])
    end(store)
    with pytest.raises(PreconditionError, match=r"grace period.*revert the entry to have it back"):
        publish(store, TABLE, [], replace=["h1"])
    with pytest.raises(PreconditionError, match="takes no new version"):
        publish(store, TABLE, [segment("h1", crc=2)])
    publish(store, TABLE, [], replace=["day"])
    with pytest.raises(PreconditionError, match="cannot be reverted, segments of it were removed"):
        revert(store)


@pytest.mark.usefixtures("outputs_are_loaded")
def test_publishing_the_same_inputs_again_after_the_end_changes_nothing(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    end(store)
    again = publish(store, TABLE, [segment("h1"), segment("h2")])
    assert (again.published, again.unchanged) == ((), ("h1", "h2"))
    with pytest.raises(PreconditionError, match="segment cannot be published"):
        publish_request(store, TABLE, PublishRequest(records=(segment("h1"),), replace_all=True))


@pytest.mark.usefixtures("outputs_are_loaded")
def test_a_publish_under_the_name_of_an_awaited_output_is_unseen_until_the_end(store: SqliteMetastore) -> None:
    start(store)
    assert publish(store, TABLE, [segment("day", docs=20), segment("new")]).published == ("new", "day")
    assert visible(store) == {"h1", "h2", "other", "new"}
    assert publish(store, TABLE, [segment("day", docs=20)]).unchanged == ("day",)
    end(store)
    assert visible(store) == {"day", "other", "new"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_a_push_of_the_whole_table_takes_outputs_away_and_is_refused_while_one_is_under_way(
    store: SqliteMetastore,
) -> None:
    start(store)
    whole = PublishRequest(records=(segment("whole"),), replace_all=True)
    with pytest.raises(PreconditionError, match="replacement under way"):
        publish_request(store, TABLE, whole)
    put(store)
    end(store)
    publish_request(store, TABLE, whole)
    assert visible(store) == {"whole"}
    forget(store)
    assert set(load(store, TABLE).segments) == {"whole"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_an_output_that_is_replaced_in_turn_holds_its_own_replacement(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    end(store)
    start(store, Replacement(segments_from=("day",), segments_to=("month",), entry="later"))
    put(store, "month", entry="later")
    with pytest.raises(PreconditionError, match="another one replaces its output"):
        revert(store)
    end(store, "later")
    assert visible(store) == {"month", "other"}
    forget(store)
    assert visible(store) == {"month", "other"}
    revert(store, "later")
    assert visible(store) == {"day", "other"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_force_reverts_what_is_in_the_way(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    again = Replacement(segments_from=("h1", "other"), segments_to=("day",), entry="f", force=True)
    start(store, again)
    states = {entry: mark.state for entry, mark in load(store, TABLE).lineage.items()}
    assert states == {"e": LineageState.REVERTED, "f": LineageState.IN_PROGRESS}
    put(store, entry="f")
    end(store, "f")
    assert visible(store) == {"h2", "day"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_only_two_generations_stay_if_asked(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    end(store)
    start(store, Replacement(segments_from=("day",), segments_to=("day2",), entry="f", drops_older=True))
    assert set(load(store, TABLE).segments) == {"day", "other"}
    put(store, "day2", entry="f")
    end(store, "f")
    assert set(load(store, TABLE).segments) == {"day", "day2", "other"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_either_side_may_be_empty(store: SqliteMetastore) -> None:
    start(store, Replacement(segments_from=(), segments_to=("a", "b"), entry="add"))
    put(store, "a", "b", entry="add")
    start(store, Replacement(segments_from=("h1",), segments_to=(), entry="remove"))
    assert visible(store) == {"h1", "h2", "other"}
    end(store, "add")
    end(store, "remove")
    assert visible(store) == {"h2", "other", "a", "b"}
    revert(store, "add")
    revert(store, "remove")
    assert visible(store) == {"h1", "h2", "other"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_an_end_may_drop_outputs_and_add_to_the_custom_map(store: SqliteMetastore) -> None:
    start(store, Replacement(segments_from=("h1",), segments_to=("a", "b"), custom_map={"x": "1"}, entry="e"))
    put(store, "a", "b")
    entry = replacements.end_replacement(store, TABLE, "e", EndOptions(segments_to=("b",), custom_map={"y": "2"}))
    assert (entry.segments_to, entry.custom_map) == (("b",), {"x": "1", "y": "2"})
    assert visible(store) == {"h2", "other", "b"}
    assert replacements.find_entry(store, TABLE, "e") == entry
    revert(store)
    assert visible(store) == {"h1", "h2", "other"}


def test_an_end_waits_for_servers_and_says_what_they_lack(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    with pytest.raises(UnavailableError, match="first=day reason: assigned to no live server yet"):
        end(store)
    server = register(store.session(), InstanceRecord(id=SERVER, role=Role.SERVER, host="host"))
    mutate(store, TABLE, lambda view: [Assign(dict.fromkeys(view.segments, (SERVER,)))])
    write_report(store, TABLE, SERVER, [], {"day@1": "no space left"})
    with pytest.raises(UnavailableError, match="not loaded by Server_host_1: no space left"):
        replacements.end_replacement(store, TABLE, "e", EndOptions(wait_loaded_s=0.05))
    write_report(store, TABLE, SERVER, ["day@1"], {})
    end(store)
    assert visible(store) == {"day", "other"}
    server.close()


@pytest.mark.usefixtures("outputs_are_loaded")
def test_a_lost_fence_ends_nothing(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    store.create("/fence", b"")
    store.put("/fence", b"somebody else", 0)
    with pytest.raises(ConflictError, match="lease is lost"):
        replacements.end_replacement(store, TABLE, "e", fence=Check("/fence", 0))
    assert visible(store) == {"h1", "h2", "other"}


@pytest.mark.usefixtures("outputs_are_loaded")
def test_entries_of_many_names_are_kept_in_chunks(store: SqliteMetastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_nodes, "NODE_NAMES", 3)
    inputs = tuple(f"i{number}" for number in range(8))
    outputs = tuple(f"o{number}" for number in range(4))
    publish(store, TABLE, [segment(name) for name in inputs])
    start(store, Replacement(segments_from=inputs, segments_to=outputs, entry="e"))
    (entry,) = replacements.list_entries(store, TABLE)
    assert (entry.segments_from, entry.segments_to) == (inputs, outputs)
    assert len(store.children(paths.lineage(TABLE))) == 5
    put(store, *outputs)
    end(store)
    forget(store)
    sweep(store, TABLE)
    assert store.children(paths.lineage(TABLE)) == []


@pytest.mark.usefixtures("outputs_are_loaded")
def test_a_deleted_table_leaves_no_lineage(store: SqliteMetastore) -> None:
    start(store)
    put(store)
    tables.delete_table(store, "t")
    assert store.children(paths.LINEAGE) in ([], [TABLE])
    assert store.children(paths.lineage(TABLE)) == []


Step = Callable[[Metastore], object]
STEPS: list[Step] = [start, put, end, revert, forget]


@pytest.fixture(params=["in one transaction", "staged"])
def _staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "staged":
        monkeypatch.setattr(commit, "MAX_MULTI_BYTES", 600)
        monkeypatch.setattr(lineage_nodes, "NODE_NAMES", 1)
    monkeypatch.setattr(commit, "MAX_BUCKET_BYTES", 1200)


@pytest.mark.usefixtures("outputs_are_loaded", "_staging")
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: STEPS[number].__name__)
def test_a_step_that_breaks_off_is_done_or_not_done_and_a_rerun_does_it(
    number: int, fault: Fault, tmp_path: Path
) -> None:
    before, after = _before_and_after(number, tmp_path / "reference")
    for at in itertools.count():
        store = make_store(tmp_path / str(at))
        for step in STEPS[:number]:
            step(store)
        faulty = FaultyMetastore(store, fault, at)
        with contextlib.suppress(ProcessDied, MerlotError):
            STEPS[number](faulty)
        assert _state(store) in (before, after)
        STEPS[number](store)
        assert _state(store) == after
        _assert_clean(store)
        store.close()
        if faulty.num_writes <= at:
            break


def _before_and_after(number: int, folder: Path) -> tuple[object, object]:
    store = make_store(folder)
    for step in STEPS[:number]:
        step(store)
    before = _state(store)
    STEPS[number](store)
    after = _state(store)
    store.close()
    return before, after


def _state(store: Metastore) -> object:
    view = load(store, TABLE)
    segments = frozenset((one.name, one.crc, one.replaces, one.replaced_by) for one in view.segments.values())
    return segments, frozenset((entry, mark.state) for entry, mark in view.lineage.items()), frozenset(view.visible)


def _assert_clean(store: Metastore) -> None:
    """After a sweep nothing is there that the root does not name, but what a write under way may still name."""
    sweep(store, TABLE)
    view = load(store, TABLE)
    heads = {(entry, mark.details) for entry, mark in view.lineage.items()}
    for name in store.children(paths.lineage(TABLE)):
        assert lineage_nodes.head_of_node(name) in heads or lineage_nodes.epoch_of_node(name) == view.epoch + 1
    assert len(replacements.list_entries(store, TABLE)) == len(view.lineage)


KINDS = ["append", "refresh", "delete", "start", "start", "put", "put", "end", "end", "revert", "forget"]


class History:
    """A table to which anything happens, and the rows that it should have. Each segment version has rows."""

    def __init__(self, store: SqliteMetastore, choice: random.Random) -> None:
        self.store = store
        self.choice = choice
        self.rows: dict[tuple[str, int], frozenset[int]] = {}
        self.alive: set[int] = set()
        self.outputs: dict[str, list[SegmentRecord]] = {}
        self._next = itertools.count()

    def new(self, rows: frozenset[int], name: str | None = None) -> SegmentRecord:
        record = segment(name or f"s{next(self._next)}", crc=next(self._next), docs=len(rows))
        self.rows[record.name, record.crc] = rows
        return record

    def seen(self) -> list[int]:
        return sorted(row for one in load(self.store, TABLE).visible.values() for row in self.rows[one.name, one.crc])

    def act(self) -> tuple[Step, set[int]]:
        """Something to do, repeatable, and the rows after it, if it is not refused."""
        view = load(self.store, TABLE)
        some = self.choice.sample(sorted(view.visible), min(len(view.visible), self.choice.randint(1, 3)))
        rows = frozenset(row for name in some for row in self.rows[name, view.visible[name].crc])
        entry = self.choice.choice(sorted(view.lineage) or ["none"])
        match self.choice.choice(
            ["append", "refresh", "delete", "start", "start", "put", "put", "end", "end", "revert", "forget"]
        ):
            case "append":
                added = frozenset({next(self._next)})
                record = self.new(added)
                return lambda store: _publish(store, record), self.alive | added
            case "refresh" if some:
                record = self.new(self.rows[some[0], view.visible[some[0]].crc], some[0])
                return lambda store: _publish(store, record), self.alive
            case "delete" if some:
                gone = self.rows[some[0], view.visible[some[0]].crc]
                return lambda store: _remove(store, some[0]), self.alive - gone
            case "start" if some:
                return self._start(view, some, rows), self.alive
            case "put" if entry in self.outputs:
                return lambda store: replacements.put_outputs(store, TABLE, entry, self.outputs[entry]), self.alive
            case "end":
                return lambda store: end(store, entry), self.alive
            case "revert":
                return lambda store: revert(store, entry), self.alive
            case "forget":
                return lambda store: forget(store, entry), self.alive
        return lambda _: None, self.alive

    def _start(self, view: TableView, some: list[str], rows: frozenset[int]) -> Step:
        parts: list[set[int]] = [set(), set()]
        for row in rows:
            self.choice.choice(parts).add(row)
        entry = f"e{next(self._next)}"
        self.outputs[entry] = [self.new(frozenset(part)) for part in parts]
        keys = tuple(view.segments[name].key for name in some)
        names = tuple(record.name for record in self.outputs[entry])
        return lambda store: start(store, Replacement(segments_from=keys, segments_to=names, entry=entry))


def _publish(store: Metastore, record: SegmentRecord) -> None:
    publish(store, TABLE, [record])


def _remove(store: Metastore, name: str) -> None:
    publish(store, TABLE, [], replace=[name])


@pytest.mark.usefixtures("outputs_are_loaded")
@pytest.mark.parametrize("seed", range(12))
def test_no_history_with_crashes_loses_or_doubles_a_row(seed: int, tmp_path: Path) -> None:
    choice = random.Random(seed)
    store = SqliteMetastore(tmp_path / "meta.db")
    tables.put_table(store, MANIFEST)
    history = History(store, choice)
    largest = 0
    for _ in range(120):
        step, after = history.act()
        faulty = FaultyMetastore(store, choice.choice(list(Fault)), choice.randint(0, 6))
        with contextlib.suppress(ProcessDied, MerlotError):
            step(faulty)
        assert history.seen() in (sorted(history.alive), sorted(after))
        with contextlib.suppress(MerlotError):
            step(store)
        seen = history.seen()
        assert seen in (sorted(history.alive), sorted(after))
        history.alive = set(seen)
        epoch = load(store, TABLE).epoch
        with contextlib.suppress(MerlotError):
            step(store)
        assert load(store, TABLE).epoch == epoch, "a repetition changes nothing"
        view = load(store, TABLE)
        assert view.total_docs == len(seen)
        node = store.get(paths.segments_root(TABLE))
        assert node is not None
        largest = max(largest, len(node.data) - 100 * len(view.lineage))
    _clean_up(store)
    assert history.seen() == sorted(history.alive)
    assert largest < 12_000
    store.close()


def _clean_up(store: SqliteMetastore) -> None:
    """Once every entry is taken out, nothing tells of any."""
    for entry, mark in load(store, TABLE).lineage.items():
        if mark.state is LineageState.IN_PROGRESS:
            revert(store, entry)
        forget(store, entry)
    sweep(store, TABLE)
    view = load(store, TABLE)
    assert view.lineage == {}
    assert view.visible == view.segments
    assert {(one.replaces, one.replaced_by) for one in view.segments.values()} <= {("", "")}
    assert all(lineage_nodes.epoch_of_node(name) > view.epoch for name in store.children(paths.lineage(TABLE)))


def test_a_root_full_of_entries_fits_a_node_and_takes_no_more(
    store: SqliteMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = LineageMark(LineageState.IN_PROGRESS, 1 << 41, f"{1 << 30}.0123456789", 1000, 1000)
    marks = {f"{number:0120d}": mark for number in range(lineage_rules.MAX_ENTRIES)}
    assert len(RootRecord(lineage=marks).to_bytes()) < 700_000
    monkeypatch.setattr(lineage_rules, "MAX_ENTRIES", 1)
    start(store)
    with pytest.raises(TooManyReplacementsError, match="too many replacements are kept"):
        start(store, Replacement(segments_from=("other",), segments_to=("x",)))
