"""A cluster with one table of batches, in one thread and in virtual time: controllers, brokers, servers, clients, a
metastore and a deep store, and what befalls them. One seed is one history."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from unittest import mock

from tests.simulation.clients import Clients
from tests.simulation.deepstore import TORN, DeepStore, File
from tests.simulation.ledger import Ledger, Rules
from tests.simulation.metastore import Session, Store, Weather
from tests.simulation.processes import TABLE, Broker, Controller, Place, Server
from tests.simulation.restores import Restores
from tests.simulation.timeline import START_MS, Act, Timeline, VirtualClock

from merlot.cluster.manifests.tables import put_table
from merlot.spec.manifest import load_tables

DAY_MS: Final = 86_400_000
YEARS_MS: Final = 20 * 365 * DAY_MS
MANIFEST: Final = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec:
  schema: {fields: [{name: row, type: LONG}, {name: d, type: TIMESTAMP, role: dateTime}]}
  timeColumn: d
  retention: 1d
  replication: 2
"""
TABLES: Final = load_tables(MANIFEST)
RULES: Final = Rules(retention_ms=DAY_MS, trash_ms=900_000, orphan_ms=600_000)
SETTLED_MS: Final = 1_200_000
"""So long after the last fault everything must be as it should."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a history is made of; drawn from its seed."""

    num_controllers: int
    num_brokers: int
    num_servers: int
    trouble_ms: int
    has_own_clock: bool
    """Whether the metastore has a clock of its own, as ZooKeeper does."""
    is_restored: bool
    """Whether the metastore may come back older, or empty."""
    pace_ms: int
    """Between two things that clients ask."""

    @staticmethod
    def draw(dice: random.Random) -> Settings:
        return Settings(
            num_controllers=dice.choice((1, 2, 2)),
            num_brokers=dice.choice((2, 2, 3)),
            num_servers=dice.choice((2, 3)),
            trouble_ms=dice.choice((1_200_000, 2_400_000)),
            has_own_clock=dice.random() < 0.5,
            is_restored=dice.random() < 0.4,
            pace_ms=dice.choice((40_000, 120_000)),
        )


class TableWorld:
    """One history; `run` raises AssertionError where something is wrong."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.settings = Settings.draw(self.dice)
        self.timeline = Timeline()
        self.weather = self._weather()
        self.store_clock = VirtualClock(self.timeline)
        self.store = Store(self.store_clock if self.settings.has_own_clock else None)
        self.deep = DeepStore(self.timeline, VirtualClock(self.timeline))
        god = Session(self.store, self.timeline, self.weather, "god", is_reliable=True)
        self.god = god
        self.ledger = Ledger(god, TABLE, RULES, lambda: self.timeline.now_ms)
        self.store.on_write = self.ledger.on_write
        self.deep.on_write = self.ledger.on_upload
        self.deep.on_delete = self.ledger.on_delete
        self.ledger.wrong_ms = lambda: self.wrong_ms
        self.wrong_ms = 0
        self.is_troubled = True

    def _weather(self) -> Weather:
        dice = self.dice
        return Weather(
            dice,
            lost_request=dice.choice((0.0, 0.002, 0.01)),
            lost_answer=dice.choice((0.0, 0.002, 0.01)),
            meeting=dice.choice((0.0, 0.005, 0.02)),
            freeze=dice.choice((0.0, 0.001, 0.003)),
            freeze_amid_deletion=dice.choice((0.0, 0.05, 0.2)),
            death=dice.choice((0.0, 0.005, 0.02)),
            late_watch=dice.choice((0.0, 0.1)),
            lost_watch=dice.choice((0.0, 0.01)),
        )

    def run(self) -> None:
        with _drawn(self.dice):
            self._start()
            self.timeline.run_until(START_MS + self.settings.trouble_ms, self._check)
            self._heal()
            self.timeline.run_until(self.timeline.now_ms + SETTLED_MS, self._check)
            self._check_end()
            self.place.pace_ms = 200_000
            self.timeline.run_until(self.timeline.now_ms + 2 * (RULES.trash_ms + RULES.orphan_ms), self._check)
            self._check_files()

    def counts(self) -> dict[str, int]:
        """How much has happened."""
        ledger, restores = self.ledger, self.restores
        return {
            **self.clients.num_done,
            "answers": ledger.num_answers,
            "incomplete": ledger.num_doubts,
            "steps": ledger.num_steps,
            "deletions": ledger.num_deletions,
            "restores": restores.num_restores,
            "recoveries": restores.num_recoveries,
        }

    def _start(self) -> None:
        self.place = place = Place(self.timeline, self.store, self.deep, self.weather, self.ledger)
        place.replaced_s = self.dice.choice((300.0, 1_300.0))
        self._apply()
        self.servers = {one.name: one for one in (Server(f"s{n}", place) for n in range(self.settings.num_servers))}
        self.controllers = [Controller(f"c{number}", place) for number in range(self.settings.num_controllers)]
        self.brokers = [Broker(f"b{number}", place, self.servers) for number in range(self.settings.num_brokers)]
        self.clients = Clients(place, self.controllers)
        self.restores = Restores(place, self.god, self.clients, self._apply)
        self._ask()
        self._trouble()

    def _apply(self) -> None:
        put_table(self.god, TABLES[0], clock=VirtualClock(self.timeline))

    def _check(self) -> None:
        assert not self.ledger.failures, f"{self.ledger.failures[0]} at {(self.timeline.now_ms - START_MS) / 1000} s"

    def _ask(self) -> None:
        if self.is_troubled:
            self.clients.act()
            self.timeline.after(self.dice.randrange(self.settings.pace_ms), self._ask)

    def _trouble(self) -> None:
        """Something happens to somebody."""
        if not self.is_troubled:
            return
        dice, server = self.dice, self.dice.choice(list(self.servers.values()))
        until_ms = dice.choice((2_000, 15_000, 60_000, 300_000))
        troubles: tuple[Act, ...] = (
            partial(self._jump, until_ms),
            partial(self._jump, until_ms),
            dice.choice(self.brokers).die,
            server.die,
            dice.choice(self.controllers).die,
            partial(dice.choice(self._sessions()).cut, until_ms),
            partial(dice.choice(self._sessions()).cut, until_ms),
            dice.choice(self._sessions()).lose,
            partial(self._be_full, until_ms),
            server.rot,
            partial(self.deep.spoil, dice, is_catalog=dice.random() < 0.3 and not self.settings.is_restored),
            partial(self._fill, server, until_ms),
            self.restores.back_up,
            self.restores.back_up,
            self._restore,
        )
        dice.choice(troubles)()
        self.timeline.after(dice.randrange(100_000), self._trouble, is_loop=True)

    def _restore(self) -> None:
        if self.settings.is_restored:
            self.restores.restore(is_empty=self.dice.random() < 0.4)

    def _sessions(self) -> list[Session]:
        return [one.session for one in (*self.brokers, *self.controllers, *self.servers.values())]

    def _jump(self, duration_ms: int) -> None:
        """A clock is wrong for a while, by up to twenty years."""
        clocks = [one.clock for one in (*self.brokers, *self.controllers, *self.servers.values())]
        clock = self.dice.choice([*clocks, self.store_clock])
        clock.off_ms = self.dice.choice((-YEARS_MS, -DAY_MS, -40_000, 40_000, DAY_MS, YEARS_MS))
        if clock is self.store_clock or any(clock is one.clock for one in self.controllers):
            self.wrong_ms += duration_ms
        self.timeline.after(duration_ms, partial(setattr, clock, "off_ms", 0))

    def _be_full(self, duration_ms: int) -> None:
        name = self.dice.choice(("is_full", "is_away"))
        setattr(self.deep, name, True)
        self.timeline.after(duration_ms, partial(setattr, self.deep, name, False))

    def _fill(self, server: Server, duration_ms: int) -> None:
        server.is_full = True
        self.timeline.after(duration_ms, partial(setattr, server, "is_full", False))

    def _heal(self) -> None:
        """Nothing goes wrong any more, and whoever has the files of what has rotted uploads them again."""
        self.is_troubled = False
        self.weather.calm()
        self.deep.is_full = self.deep.is_away = False
        self.store_clock.off_ms = 0
        for one in (*self.brokers, *self.controllers, *self.servers.values()):
            one.clock.off_ms = 0
        for server in self.servers.values():
            server.is_full = False
        for url, data in self.clients.built.items():
            if url in self.deep.files and self.deep.files[url].data == TORN:
                rotten = self.deep.files[url]
                self.deep.files[url] = File(data, rotten.written_ms, rotten.stamp_ms)

    def _check_end(self) -> None:
        view = self.ledger.view
        assert view is not None
        for broker in self.brokers:
            assert broker.loop.problems == []
            rows, is_complete = broker.last or (frozenset(), False)
            lacks, more = sorted(self.ledger.rows - rows), sorted(rows - self.ledger.rows)
            text = f"L7 {broker} lacks {lacks} has {more} complete={is_complete} why={broker.why}"
            assert is_complete, text
            assert rows == self.ledger.rows, text
        missing = [record.name for record in view.segments.values() if record.url not in self.deep.files]
        assert not missing, f"L7 files are missing: {missing}"

    def _check_files(self) -> None:
        """What nobody names is gone, after its grace period."""
        view = self.ledger.view
        assert view is not None
        if not view.segments:
            return  # nobody looks for orphans of a table without segments: it may have lost them
        named = {record.url for record in view.segments.values()}
        lately_ms = self.timeline.now_ms - 2 * RULES.trash_ms
        lately = {url for url, (since_ms, _) in self.ledger.trashed_ms.items() if since_ms > lately_ms}
        left = [url for url in self.deep.files if url.endswith(".mseg") and url not in named | lately]
        assert not left, f"L8 files are left: {left}"


@contextmanager
def _drawn(dice: random.Random) -> Iterator[None]:
    """Have names that the product draws come from the history's own dice."""
    names = random.Random(dice.random())
    with mock.patch.object(secrets, "token_hex", lambda number=8: names.randbytes(number).hex()):
        yield
