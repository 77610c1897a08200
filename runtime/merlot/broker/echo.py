"""Report to the cluster what this broker runs: revisions, marked servers that it still routes to, pruners that fail.

The report is written on change, at most once a second. Queries alone change parts of it, so it is also compared every
`BrokerTuning.echo_look_s`. Belongs to the event loop; writes go through a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from merlot.broker.tables import ServedTable
from merlot.broker.tuning import BrokerTuning
from merlot.cluster.instances.echoes import remove_echo, write_echo
from merlot.cluster.records import DrainRecord, EchoRecord
from merlot.errors import MerlotError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, SessionState, Watch
from merlot.wakeups import run_on

_LOG = logging.getLogger(__name__)

MAX_PROBLEMS = 5
"""Maximum number of problems that are reported for a table."""


def echo_of(tables: Mapping[TableName, ServedTable], drains: Mapping[InstanceId, DrainRecord]) -> EchoRecord:
    """Return the report. `drains`: marks that this broker has seen. `busy` has the marked servers that its routes do
    not avoid yet."""
    busy = {
        instance: tuple(sorted(name for name, table in tables.items() if instance in table.snapshot.servers))
        for instance in drains
    }
    return EchoRecord(
        revisions={name: tables[name].revision for name in sorted(tables)},
        drains={instance: mark.token for instance, mark in sorted(drains.items())},
        busy={instance: names for instance, names in sorted(busy.items()) if names},
        problems={name: problems[:MAX_PROBLEMS] for name in sorted(tables) if (problems := tables[name].problems())},
        missed={name: number for name in sorted(tables) if (number := len(tables[name].snapshot.unavailable))},
    )


class Echo:
    """Writer of the report, with a task of its own. `observe` is called on the event loop."""

    def __init__(
        self,
        metastore: Metastore,
        broker: InstanceId,
        observe: Callable[[], EchoRecord],
        tuning: BrokerTuning,
    ) -> None:
        self._tuning = tuning
        self._metastore = metastore
        self._broker = broker
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._written: EchoRecord | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    async def start(self) -> None:
        """Write the report once, then follow changes. Raise UnavailableError if the metastore does not answer."""
        await self._write()
        self._watch = self._metastore.on_session(self._on_session)
        self._task = asyncio.create_task(self._run(), name="broker-echo")

    def poke(self) -> None:
        """Compare the report soon, since it may have changed."""
        self._is_due.set()

    async def stop(self) -> None:
        """Stop reporting, and remove the report."""
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(MerlotError):
            await asyncio.to_thread(remove_echo, self._metastore, self._broker)

    def _on_session(self, state: SessionState) -> None:
        """Write the report again: its node may have been removed while the session was gone. Called on a metastore's
        thread."""
        if state is SessionState.CONNECTED:
            run_on(self._loop, self._write_anew)

    def _write_anew(self) -> None:
        self._written = None
        self._is_due.set()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tuning.echo_look_s):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._write()
            except MerlotError as error:
                _LOG.warning("echo not written cause=%s", error)
                self._write_anew()
            await asyncio.sleep(self._tuning.echo_rest_s)

    async def _write(self) -> None:
        record = self._observe()
        if record != self._written:
            await asyncio.to_thread(write_echo, self._metastore, self._broker, record)
            self._written = record
