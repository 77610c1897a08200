"""Tells the cluster what this broker runs: revisions, the marked servers that it still routes to, pruners that fail.

Written on change, at most once a second; looked at now and then, since some of it changes with queries alone.
Belongs to the event loop; writes go through a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from merlot.broker.tables import ServedTable
from merlot.cluster.instances.echoes import remove_echo, write_echo
from merlot.cluster.records import DrainRecord, EchoRecord
from merlot.errors import MerlotError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, SessionState, Watch
from merlot.wakeups import run_on

_LOG = logging.getLogger(__name__)

REST_S = 1.0
"""Between two writes; also until one that failed is tried again."""
LOOK_S = 10.0
"""Between two looks, if nobody says that something changed."""
MAX_PROBLEMS = 5
"""Told of one table."""


def echo_of(tables: Mapping[TableName, ServedTable], drains: Mapping[InstanceId, DrainRecord]) -> EchoRecord:
    """What to say. `drains` are the marks that the tables' routes heed, or soon will: routes tell which do not yet."""
    busy = {one: tuple(sorted(name for name in tables if one in _asked(tables[name]))) for one in drains}
    return EchoRecord(
        revisions={name: tables[name].revision for name in sorted(tables)},
        drains={one: mark.token for one, mark in sorted(drains.items())},
        busy={one: names for one, names in sorted(busy.items()) if names},
        problems={name: found[:MAX_PROBLEMS] for name in sorted(tables) if (found := tables[name].problems())},
        missed={name: number for name in sorted(tables) if (number := len(tables[name].snapshot.unavailable))},
    )


def _asked(table: ServedTable) -> set[InstanceId]:
    """Servers that queries of the table are sent to now."""
    return set().union(*{segment.replicas for segment in table.snapshot.segments.values()})


class Echo:
    """Owns the task that writes. `observe` is called on the event loop."""

    def __init__(self, metastore: Metastore, broker: InstanceId, observe: Callable[[], EchoRecord]) -> None:
        self._metastore = metastore
        self._broker = broker
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._written: EchoRecord | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    async def start(self) -> None:
        """Write once, then follow. UnavailableError if the metastore is silent."""
        await self._write()
        self._watch = self._metastore.on_session(self._on_session)
        self._task = asyncio.create_task(self._run(), name="broker-echo")

    def poke(self) -> None:
        """What is said may have changed."""
        self._is_due.set()

    async def stop(self) -> None:
        """Say nothing any more."""
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(MerlotError):
            await asyncio.to_thread(remove_echo, self._metastore, self._broker)

    def _on_session(self, state: SessionState) -> None:
        """On a thread of the metastore: the node may have been cleaned away while this broker was out of sight."""
        if state is SessionState.CONNECTED:
            run_on(self._loop, self._write_anew)

    def _write_anew(self) -> None:
        self._written = None
        self._is_due.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._write()
            except MerlotError as error:
                _LOG.warning("echo not written cause=%s", error)
                self._write_anew()
            await asyncio.sleep(REST_S)

    async def _write(self) -> None:
        record = self._observe()
        if record != self._written:
            await asyncio.to_thread(write_echo, self._metastore, self._broker, record)
            self._written = record
