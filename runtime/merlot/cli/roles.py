"""Run a role as a process of its own: with a session of its cluster's ZooKeeper, and with a door."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from merlot.cli.doors import DoorSettings, opened_door
from merlot.cli.processes import STOP_SIGNALS
from merlot.errors import UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.security.door import Door
from merlot.security.tls import TlsFiles
from merlot.telemetry import LogFormat, configure_logging

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """Settings that the processes of all roles have."""

    role: str
    zookeeper: str
    zookeeper_tls: TlsFiles | None
    """Files to speak TLS with ZooKeeper; None to call it without TLS."""
    door: DoorSettings
    log_level: str
    log_format: LogFormat


def run_role(options: RoleOptions, run: Callable[[Metastore, Door], Awaitable[None]]) -> None:
    """Run a role until it ends. Raise InvalidInputError if its access document cannot be read."""
    configure_logging(options.log_level, options.log_format, role=options.role)

    async def main() -> None:
        metastore = await _connected(options)
        if metastore is None:
            return
        try:
            async with opened_door(options.door) as door:
                await run(metastore, door)
        finally:
            await asyncio.to_thread(metastore.close)

    asyncio.run(main())


async def _connected(options: RoleOptions) -> ZooKeeperMetastore | None:
    """Return a ZooKeeper session, however long ZooKeeper takes to start; None if a signal came first. If the process
    exited instead, its restarts, each later than the one before, would only add to the wait."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    hosts, tls = options.zookeeper, options.zookeeper_tls
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    try:
        while not stopping.is_set():
            try:
                return await asyncio.to_thread(ZooKeeperMetastore, hosts, tls=tls)
            except UnavailableError as error:
                _LOG.warning("waiting for ZooKeeper hosts=%s cause=%s", hosts, error)
        return None
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
