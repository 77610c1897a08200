"""What must hold of a table's rows and files, whatever befalls the cluster. A failure is kept until the timeline looks:
raised inside a call of the product it might be taken for an error of the call.

- L1 Rows leave a table only as somebody has asked: by a deletion, or by retention once they are older than it.
- L2 No row is in two visible segments, nor twice in an answer.
- L3 An answer that does not say that it is incomplete has every row that any answer had before, and that nobody has
  removed since; and no row that was never published.
- L4 No file goes that a record names.
- L5 The file of a removed segment stays as long as the trash says, but for the time for which clocks were wrong; and a
  file that nobody has named yet as long as a job may take. So what was removed can be brought back.
- L6 What a writer was told is done is done.
- L7 Once nothing goes wrong any more, every broker answers the same, all that is there, and every record has its file.
- L8 Some time later, no file is left that nobody names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.deepstore import File
from tests.simulation.metastore import Session

from merlot.cluster import paths
from merlot.cluster.records import CondemnedRecord, SegmentRecord
from merlot.cluster.segments.view import TableView, load
from merlot.errors import NotFoundError
from merlot.ids import SEGMENT_SUFFIX, TableName

Rows = frozenset[int]
NONE: Rows = frozenset()


@dataclass(frozen=True)
class Intent:
    """The rows that a write may add and remove."""

    adds: Rows = NONE
    removes: Rows = NONE


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Durations that the cluster was started with, in milliseconds."""

    retention_ms: int
    trash_ms: int
    orphan_ms: int


@dataclass
class Known:
    """The rows that a broker has answered without an exception, and that nobody has removed since."""

    rows: set[int] = field(default_factory=set)


class Ledger:
    """Follows the root of the table, deletions and answers."""

    def __init__(self, session: Session, table: TableName, rules: Rules, now_ms: Callable[[], int]) -> None:
        self._session = session
        self._table = table
        self._rules = rules
        self._now_ms = now_ms
        self.failures: list[str] = []
        self.contents: dict[str, tuple[int, ...]] = {}
        """Rows of every segment that was ever built, by its key."""
        self.row_ms: dict[int, int] = {}
        """Times of rows."""
        self.view: TableView | None = None
        self.rows: Rows = NONE
        """Rows of the visible segments."""
        self.ever: set[int] = set()
        self.left_ms: dict[int, int] = {}
        self.trashed_ms: dict[str, tuple[int, int]] = {}
        """Files of removed records, since when, and how far sure time was behind then: it catches up."""
        self.brokers: dict[str, Known] = {}
        self.wrong_ms: Callable[[], int] = lambda: 0
        """How long clocks were wrong, in all."""
        self.num_answers = self.num_deletions = self.num_steps = self.num_doubts = 0
        self._uploaded_ms: dict[str, int] = {}
        self._doubted: Rows | None = None
        """Rows of the catalog, while nobody has judged a metastore that came back."""
        self._intents: dict[Session, Intent] = {}

    def fail(self, text: str) -> None:
        self.failures.append(text)

    @contextmanager
    def intending(self, session: Session, intent: Intent) -> Iterator[None]:
        """What this session writes meanwhile may do this."""
        before = self._intents.get(session)
        self._intents[session] = intent
        try:
            yield
        finally:
            self._intents.pop(session)
            if before is not None:
                self._intents[session] = before

    def rows_of(self, records: Mapping[str, SegmentRecord]) -> list[int]:
        return [row for record in records.values() for row in self.contents[record.key_text]]

    def on_write(self, session: Session, changed: frozenset[str]) -> None:
        """A transaction has gone through."""
        if paths.segments_root(self._table) in changed:
            self.follow(self._intents.get(session), by=session.process)

    def follow(self, intent: Intent | None, *, by: object, is_checked: bool = True) -> None:
        """Compare the table with what it was."""
        before, old = self.view, self.rows
        try:
            view = load(self._session, self._table, before)
        except NotFoundError:
            return
        self.num_steps += 1
        listed = self.rows_of(view.visible)
        rows = frozenset(listed)
        if len(listed) != len(rows):
            self.fail(f"L2 a row is in two visible segments: {_twice(listed)} by={by} {sorted(view.visible)}")
        self.view, self.rows = view, rows
        self.ever |= rows
        if is_checked:
            self._check_step(old, rows, intent, by)
        gone = old - rows
        for row in gone:
            self.left_ms[row] = self._now_ms()
        for known in self.brokers.values():
            known.rows -= gone if self._doubted is None else gone - self._doubted
        self._follow_files(before, view)

    def come_back(self, kept: Rows) -> None:
        """The metastore is as it was at another time, or empty. kept: rows that the table's catalog names: they are
        not lost, and whoever has answered them goes on missing them."""
        before = set(self.rows)
        known = {name: set(one.rows) for name, one in self.brokers.items()}
        self.view, self.rows = None, NONE
        self.follow(None, by="restore", is_checked=False)
        for row in before - self.rows:
            self.left_ms[row] = self._now_ms()
        for name, one in self.brokers.items():
            one.rows = set(known[name] & (self.rows | kept))
        self.trashed_ms.clear()
        self._doubted = kept

    def believe(self) -> None:
        """The table is what its records say: they were compared with the catalog, or nobody compares them."""
        self._doubted = None
        for one in self.brokers.values():
            one.rows &= self.rows

    def _check_step(self, old: Rows, rows: Rows, intent: Intent | None, by: object) -> None:
        if intent is None:  # the controller's own doing
            oldest_ms = self._now_ms() - self._rules.retention_ms + self.wrong_ms()
            lost = {row for row in old - rows if self.row_ms[row] >= oldest_ms}
            if lost or rows - old:
                self.fail(f"L1 rows left that nobody removed: {sorted(lost)} or came: {sorted(rows - old)} by={by}")
        elif not (old - rows <= intent.removes and rows - old <= intent.adds):
            lost, come = old - rows - intent.removes, rows - old - intent.adds
            self.fail(f"L1 a write removed {sorted(lost)} and added {sorted(come)} beside what it was to by={by}")

    def _follow_files(self, before: TableView | None, view: TableView) -> None:
        here = {record.url for record in view.segments.values()}
        for url in () if before is None else {one.url for one in before.segments.values()} - here:
            self.trashed_ms[url] = (self._now_ms(), self._behind_ms())
        for url in here & self.trashed_ms.keys():
            del self.trashed_ms[url]

    def on_upload(self, url: str) -> None:
        """A file was written. If it is being deleted at this time, its writer has to look whether it is there."""
        node = self._session.get(paths.condemned(self._table))
        record = CondemnedRecord() if node is None or not node.data else CondemnedRecord.from_bytes(node.data, "")
        if url not in record.urls:
            self._uploaded_ms[url] = self._now_ms()

    def _behind_ms(self) -> int:
        node = self._session.get(paths.SURE_TIME)
        return 0 if node is None else max(0, self._now_ms() - int(node.data))

    def on_delete(self, url: str, file: File) -> None:
        """A file is about to go."""
        if not url.endswith(SEGMENT_SUFFIX):
            return
        self.num_deletions += 1
        view = self.view
        if view is not None and any(record.url == url for record in view.segments.values()):
            self.fail(f"L4 a file goes that a record names: {url}")
            return
        now_ms, wrong_ms = self._now_ms(), self.wrong_ms()
        removed = self.trashed_ms.get(url)
        if now_ms - self._uploaded_ms.get(url, 0) < self._rules.orphan_ms - wrong_ms:
            self.fail(f"L5 a file goes that was uploaded {(now_ms - self._uploaded_ms[url]) // 1000} s ago: {url}")
        if removed is not None:
            since_ms, behind_ms = removed
            if now_ms - since_ms < self._rules.trash_ms - wrong_ms - behind_ms:
                kept_s = (now_ms - since_ms) // 1000
                self.fail(f"L5 the trash kept a file for {kept_s} s, wrong={wrong_ms} behind={behind_ms}: {url}")
        elif now_ms - file.written_ms < self._rules.orphan_ms - wrong_ms:
            self.fail(f"L5 a file goes that a job may publish yet, {(now_ms - file.written_ms) // 1000} s old: {url}")

    def check_told(self, rows: Rows, since_ms: int, what: str) -> None:
        """Rows that a writer was told are there now: they are, unless they were removed since it began."""
        lost = {row for row in rows - self.rows if self.left_ms.get(row, 0) < since_ms and self._is_young(row)}
        if lost:
            self.fail(f"L6 a writer was told that rows are in the table, and they are not: {sorted(lost)} {what}")

    def _is_young(self, row: int) -> bool:
        return self.row_ms[row] >= self._now_ms() - self._rules.retention_ms + self.wrong_ms()

    def check_answer(self, broker: str, answered: list[int], *, is_complete: bool) -> None:
        """An answer has come. `is_complete`: it says nothing else."""
        self.num_answers += 1
        rows = set(answered)
        if len(rows) != len(answered):
            self.fail(f"L2 a row is twice in an answer of {broker}: {_twice(answered)}")
        if rows - self.ever:
            self.fail(f"L3 an answer of {broker} has rows that nobody has published: {sorted(rows - self.ever)}")
        if not is_complete:
            self.num_doubts += 1
            return
        known = self.brokers.setdefault(broker, Known())
        if known.rows - rows:
            self.fail(f"L3 an answer of {broker} lacks rows and does not say so: {sorted(known.rows - rows)}")
        known.rows |= rows & self.rows

    def begin(self, broker: str) -> None:
        """A broker starts: it has to miss whatever any other one had answered."""
        rows = {row for known in self.brokers.values() for row in known.rows}
        self.brokers[broker] = Known(rows if self._doubted is None else rows & self.rows)


def _twice(rows: list[int]) -> list[int]:
    seen: set[int] = set()
    return sorted({row for row in rows if row in seen or seen.add(row)})  # type: ignore[func-returns-value]
