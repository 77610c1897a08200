"""Table data manager of `orders` on one server, over a real metastore, deep store and folder."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.support.sample import ORDERS

from merlot.clock import SystemClock
from merlot.cluster.instances.reports import ReportReader, ServerReport
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.ids import InstanceId
from merlot.metastore.sqlite import SqliteMetastore
from merlot.server.files import LocalSegmentFiles
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.poller import DecodeSlots
from merlot.server.realtime.table import StreamThreads
from merlot.server.table_data_manager import TableDataDeps, TableDataManager
from merlot.server.tuning import FileTuning, LoadTuning, ServerTuning, TableTuning
from merlot.store.deepstore import DeepStore
from merlot.store.retry import RetryPolicy
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER

SHORT_WAITS: Final = ServerTuning(
    loads=LoadTuning(first_retry_s=0.1), tables=TableTuning(retry_s=0.05, linger_s=0.01, recheck_s=0.05, look_s=0.05)
)
FULL_DISK: Final = FileTuning(spare_bytes=1 << 60)
"""Sizes by which no disk has room for another file."""


class TableDataBench:
    """Dependencies of a table data manager. Closing it ends the managers that it started."""

    me = InstanceId("Server_me_1")
    other = InstanceId("Server_other_2")

    def __init__(self, folder: Path, *, deep_store: str | None = None) -> None:
        self._folder = folder
        self.metastore = SqliteMetastore(folder / "metastore.sqlite")
        self.deep_store = DeepStore(deep_store or str(folder / "deep"), retry=RetryPolicy(attempts=2, first_wait=0.01))
        self.files = LocalSegmentFiles(folder / "server")
        self.quarantine = folder / "server" / "quarantine"
        self._exits = AsyncExitStack()

    def assign(self, *instances: InstanceId) -> None:
        """Assign every segment to these servers."""
        mutate(self.metastore, ORDERS, lambda view: [Assign(dict.fromkeys(view.segments, instances))])

    def report(self) -> ServerReport:
        """Return the server's report; empty if it has not written one."""
        reports = ReportReader(self.metastore, ORDERS).read()
        return reports.get(self.me) or ServerReport(self.me, frozenset(), {})

    def path_of(self, key: str) -> Path:
        """Return the path of the server's copy of this version."""
        return self.files.path_of(ORDERS, key)

    async def start_manager(self, *, grace_s: float = 60.0) -> TableDataManager:
        """A new life of the same server."""
        pool = self._exits.enter_context(ThreadPoolExecutor(4))
        deps = TableDataDeps(
            metastore=self.metastore,
            instance=self.me,
            files=self.files,
            io=pool,
            loads=pool,
            indexes=pool,
            upserts=pool,
            tuning=SHORT_WAITS,
            clock=SystemClock(),
            store_of=lambda _: self.deep_store,
            grace_s=grace_s,
            streams=StreamThreads(
                seals=pool,
                writes=pool,
                looks=pool,
                snapshots=pool,
                turns=DecodeSlots(2),
                memory=MemoryBudget(1 << 30),
                folder=self._folder / "sealing",
                snapshot_folder=self._folder / "snapshots",
                secrets_of=lambda _: {},
                allowed=AllowedStreams(folders=EVERY_FOLDER),
            ),
        )
        manager = TableDataManager(ORDERS, deps)
        await manager.open_local()
        task = asyncio.create_task(manager.run())

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            manager.segments.close()

        self._exits.push_async_callback(stop)
        return manager

    async def stop_managers(self) -> None:
        """End every life so far."""
        await self._exits.aclose()

    async def close(self) -> None:
        """End everything."""
        await self.stop_managers()
        self.metastore.close()
