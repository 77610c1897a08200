"""Whoever writes to the simulated table: batches, merges, people who delete, undo and bring back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.simulation.deepstore import Files, url_of
from tests.simulation.ledger import NONE, Intent, Rows
from tests.simulation.processes import TABLE, Controller, Place
from tests.support.faults import ProcessDied

from merlot.cluster.lineage.replacements import (
    Replacement,
    end_replacement,
    put_outputs,
    revert_replacement,
    start_replacement,
)
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.condemned import FileCondemnedError
from merlot.cluster.segments.mutations import PreconditionError
from merlot.cluster.segments.publish import PublishRequest
from merlot.errors import (
    ConflictError,
    CorruptionError,
    InvalidInputError,
    MerlotError,
    NotFoundError,
    UnavailableError,
)
from merlot.ids import SegmentKey
from merlot.spec.tasks import MERGE_LEVEL

HOUR_MS: Final = 3_600_000
FRESH_MS: Final = 240_000
"""A job that takes longer uploads its files again: they may have been taken for orphans."""
TRIES: Final = 6
"""A writer that is refused for a while tries again so often."""
REFUSED: Final = (CorruptionError, PreconditionError, NotFoundError, InvalidInputError, ConflictError)
"""A refusal that trying again does not change."""


@dataclass
class Removed:
    """A segment that somebody has removed."""

    name: str
    rows: Rows
    at_ms: int


@dataclass
class Job:
    """A publication from the first upload to the end, or to where it is given up."""

    records: tuple[SegmentRecord, ...]
    replace: tuple[str, ...] = ()
    tries: int = TRIES
    entry: str = ""
    """Of a merge."""
    uploaded_ms: int = 0
    is_over: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Segments that come or go."""
        return frozenset((*self.replace, *(one.name for one in self.records)))


class Clients:
    """Draws what is asked of the table next, and plays it."""

    def __init__(self, place: Place, controllers: Sequence[Controller]) -> None:
        self._place = place
        self.controllers = controllers
        self._dice: random.Random = place.weather.dice
        self._numbers = itertools.count(1)
        self._files = Files(place.deep, place.timeline, place.weather, self)
        self.removed: list[Removed] = []
        self.built: dict[str, bytes] = {}
        """Content of every file that was ever uploaded, by its URL."""
        self._exchanged: set[str] = set()
        self._claimed: set[str] = set()
        """Names that a publication under way is about: no other one of their writers is."""
        self.num_done: dict[str, int] = {}
        self.is_held = False
        """Nobody writes: the metastore has just come back as it was before."""

    def act(self) -> None:
        """Begin one piece of work."""
        if self.is_held:
            return
        kinds = (self.push, self.push, self.push, self.refresh, self.exchange, self.merge, self.merge, self.undo,
                 self.delete, self.delete, self.undelete, self.undelete, self.push_again)  # fmt: skip
        self._dice.choice(kinds)()

    # What is built

    def build(self, name: str, rows: Iterable[int]) -> SegmentRecord:
        """A segment's record; its file is not there yet."""
        ledger, crc = self._place.ledger, next(self._numbers)
        rows = tuple(rows)
        times = [ledger.row_ms[row] for row in rows]
        record = SegmentRecord(
            name=name, crc=crc, size_bytes=100, url="", total_docs=len(rows),
            start_time_ms=min(times), end_time_ms=max(times),
        )  # fmt: skip
        record = record.model_copy(update={"url": url_of(TABLE, record.key)})
        ledger.contents[record.key_text] = rows
        return record

    def new_rows(self, number: int) -> list[int]:
        """Rows of one time, up to a little more than the retention ago."""
        at_ms = self._place.timeline.now_ms - round(self._dice.uniform(0, 25.5) * HOUR_MS)
        rows = [next(self._numbers) for _ in range(number)]
        self._place.ledger.row_ms.update(dict.fromkeys(rows, at_ms))
        return rows

    def rows_of(self, record: SegmentRecord) -> Rows:
        return frozenset(self._place.ledger.contents[record.key_text])

    def rows_named(self, names: Iterable[str]) -> Rows:
        """Rows of any version of these segments."""
        wanted, contents = set(names), self._place.ledger.contents
        found = (rows for key, rows in contents.items() if key.rpartition("@")[0] in wanted)
        return frozenset().union(*found)

    # What is asked

    def push(self) -> None:
        """New segments."""
        records = [self.build(f"p{next(self._numbers)}", self.new_rows(2)) for _ in range(self._dice.choice((1, 1, 3)))]
        self._begin(Job(tuple(records)))

    def refresh(self) -> None:
        """A new version of a segment that was pushed, with a row more. Of a merged one nobody but its writer would know
        that it still holds the rows that it was made of."""
        record = self._some_visible()
        if record is not None and record.name.startswith("p"):
            row = next(self._numbers)
            self._place.ledger.row_ms[row] = record.end_time_ms or 0
            self._begin(Job((self.build(record.name, [*self.rows_of(record), row]),)))

    def exchange(self) -> None:
        """One segment in place of two, in one stroke. What merged ones were made of would be forgotten."""
        records = self._visible(2)
        if len(records) == 2 and all(one.name.startswith("p") for one in records):
            rows = sorted(frozenset().union(*map(self.rows_of, records)))
            made = self.build(f"x{next(self._numbers)}", rows)
            names = tuple(one.name for one in records)
            self._exchanged.update(names)  # only their writer knows who has their rows now
            self._begin(Job((made,), replace=names))

    def push_again(self) -> None:
        """The very file of a removed segment, as by a batch that runs once more."""
        if candidates := self._restorable():
            name = self._dice.choice(candidates).name
            found = [key for key in self._place.ledger.contents if key.rpartition("@")[0] == name]
            if found and name.startswith("p"):
                rows = self._place.ledger.contents[found[0]]
                record = self.build(name, rows).model_copy(update={"crc": int(found[0].rpartition("@")[2])})
                record = record.model_copy(update={"url": url_of(TABLE, record.key)})
                self._begin(Job((record,)))

    def merge(self) -> None:
        """Two segments become one by a replacement: start, outputs, end."""
        records = self._visible(2)
        if len(records) == 2:
            rows = sorted(frozenset().union(*map(self.rows_of, records)))
            made = self.build(f"m{next(self._numbers)}", rows)
            made = made.model_copy(update={"custom_map": {MERGE_LEVEL: "1d"}})
            job = Job((made,), entry=f"e{next(self._numbers)}")
            keys = tuple(one.key for one in records)
            self._step(job, "merge", partial(self._start, job, keys), partial(self._put_files, job))

    def undo(self) -> None:
        """Take a replacement back."""
        view = self._place.ledger.view
        entries = [] if view is None else [one for one, mark in view.lineage.items() if mark.state != "REVERTED"]
        if entries:
            entry = self._dice.choice(entries)
            self._ask(
                "undo",
                Intent(),
                lambda one: (
                    revert_replacement(one.session, TABLE, entry, context=one.service.lineage_source[1]) is not None
                ),
            )

    def delete(self) -> None:
        """Remove segments."""
        if records := self._visible(self._dice.choice((1, 1, 2))):
            rows = self.rows_named([one.name for one in records])
            removed = [Removed(one.name, self.rows_of(one), self._place.timeline.now_ms) for one in records]
            names = [one.name for one in records]
            if self._ask(
                "delete", Intent(removes=rows), lambda one: bool(one.service.delete_segments("t", lambda _: names))
            ):
                self.removed += removed

    def undelete(self) -> None:
        """Bring a removed segment back."""
        if candidates := self._restorable():
            self.bring_back(self._dice.choice(candidates))

    def bring_back(self, removed: Removed) -> bool:
        now_ms = self._place.timeline.now_ms
        adds = self.rows_named([removed.name])
        return self._ask(
            "undelete", Intent(adds=adds), lambda one: bool(one.service.recovery.undelete("t", [removed.name])),
            done=lambda: self._place.ledger.check_told(NONE, now_ms, removed.name),
        )  # fmt: skip

    def recover(self, intent: Intent) -> bool:
        """Have the lost table answer again with what its catalog names."""

        def act(one: Controller) -> bool:
            return bool(one.service.recovery.recover("t"))

        return self._ask("recover", intent, act, is_urgent=True)

    # How it goes

    def _begin(self, job: Job) -> None:
        if self._claimed.isdisjoint(job.names):
            self._claimed |= job.names
            self._upload(job)

    def _upload(self, job: Job) -> None:
        if self._put_files(job):
            self._later(partial(self._publish, job))
        else:
            self._claimed -= job.names

    def _put_files(self, job: Job) -> bool:
        """Whether all files are uploaded; a job that cannot fails, and leaves what it has uploaded."""
        try:
            job.uploaded_ms = self._place.timeline.now_ms
            for record in job.records:
                self.built[record.url] = record.to_bytes()
                self._files.write(record.url, self.built[record.url])
        except UnavailableError:
            return False
        if job.entry:
            self._later(partial(self._step, job, "put", partial(self._put, job), partial(self._end_soon, job)))
        return True

    def _publish(self, job: Job) -> None:
        if self._place.timeline.now_ms - job.uploaded_ms > FRESH_MS:
            self._upload(job)
            return
        rows = frozenset().union(*map(self.rows_of, job.records))
        request = PublishRequest(records=job.records, replace=job.replace, replace_rows=True)
        removes = self.rows_named([*job.replace, *(one.name for one in job.records)]) - rows
        began_ms = self._place.timeline.now_ms
        what = f"published {sorted(job.names)}"
        job.is_over = True
        self._ask(
            "publish",
            Intent(rows, removes),
            lambda one: bool(one.service.publish("t", request)),
            done=lambda: self._place.ledger.check_told(rows, began_ms, what),
            again=partial(self._try_again, job),
        )
        if job.is_over:
            self._claimed -= job.names

    def _try_again(self, job: Job, error: MerlotError) -> None:
        job.tries -= 1
        if job.tries <= 0 or self.is_held:
            return
        job.is_over = False
        if isinstance(error, FileCondemnedError):
            self._later(partial(self._upload, job))
        else:
            self._later(partial(self._publish, job))

    def _start(self, job: Job, keys: Sequence[SegmentKey], one: Controller) -> bool:
        names = tuple(record.name for record in job.records)
        replacement = Replacement(segments_from=keys, segments_to=names, entry=job.entry)
        start_replacement(one.session, TABLE, replacement, context=one.service.lineage_source[1])
        return True

    def _put(self, job: Job, one: Controller) -> bool:
        put_outputs(one.session, TABLE, job.entry, job.records, context=one.service.lineage_source[1])
        return True

    def _end(self, job: Job, one: Controller) -> bool:
        end_replacement(one.session, TABLE, job.entry, context=one.service.lineage_source[1])
        return True

    def _end_soon(self, job: Job) -> None:
        self._later(partial(self._step, job, "end", partial(self._end, job), lambda: None))

    def _step(self, job: Job, what: str, act: Callable[[Controller], bool], then: Callable[[], object]) -> None:
        """One step of a merge, tried again while it may still go; a minion that dies leaves the rest."""
        if self._place.weather.chance(self._place.weather.death * 5):
            return

        def again(error: MerlotError) -> None:
            job.tries -= 1
            if job.tries > 0 and not self.is_held:
                self._later(partial(self._step, job, what, act, then))

        self._ask(what, Intent(), act, done=then, again=again)

    def _ask(
        self,
        what: str,
        intent: Intent,
        act: Callable[[Controller], bool],
        *,
        done: Callable[[], object] = lambda: None,
        again: Callable[[MerlotError], None] = lambda error: None,
        is_urgent: bool = False,
    ) -> bool:
        """Ask some controller, any that is there; whether it said yes."""
        ready = [one for one in self.controllers if one.is_up and one not in self._place.timeline.busy]
        if not ready or (self.is_held and not is_urgent):
            again(UnavailableError("no controller"))
            return False
        controller = self._dice.choice(ready)
        busy, session = self._place.timeline.busy, controller.session
        busy.add(controller)
        try:
            with self._place.ledger.intending(session, intent):
                is_done = act(controller)
        except ProcessDied:
            if controller.session is session:
                controller.die()
            again(UnavailableError("connection lost"))
            return False
        except FileCondemnedError as error:
            again(error)
            return False
        except REFUSED:
            return False
        except UnavailableError as error:
            again(error)
            return False
        finally:
            busy.discard(controller)
        if is_done:
            self.num_done[what] = self.num_done.get(what, 0) + 1
            done()
        return is_done

    def _later(self, act: Callable[[], object]) -> None:
        def play() -> None:
            act()

        self._place.timeline.after(self._dice.randrange(500, 60_000), play, self)

    def _restorable(self) -> list[Removed]:
        return [one for one in self.removed if one.name not in self._exchanged]

    def _visible(self, number: int) -> list[SegmentRecord]:
        view = self._place.ledger.view
        here = [] if view is None else [view.visible[name] for name in sorted(view.visible)]
        return self._dice.sample(here, min(number, len(here)))

    def _some_visible(self) -> SegmentRecord | None:
        return next(iter(self._visible(1)), None)
