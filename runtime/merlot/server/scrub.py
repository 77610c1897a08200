"""Read all served files again and again, slowly, so that a bit that rots on the disk is detected before a query reads
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from merlot.errors import MerlotError
from merlot.server.table_data_manager import TableDataManager

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubConfig:
    """Speed of scrubbing. `idle_s` are the seconds between two rounds, however little there is to read."""

    bytes_per_s: int = 20 << 20
    idle_s: float = 600.0


async def scrub(managers: Callable[[], Collection[TableDataManager]], config: ScrubConfig) -> None:
    """Scrub until cancelled."""
    while True:
        await asyncio.sleep(config.idle_s)
        num_corrupt = 0
        for manager, key, size_bytes in _everything(managers()):
            await asyncio.sleep(size_bytes / config.bytes_per_s)
            try:
                num_corrupt += not await manager.check(key)
            except MerlotError as error:
                _LOG.warning("segment file not checked table=%s segment=%s cause=%s", manager.table, key, error)
        _LOG.info("all segment files read again num_corrupt=%d", num_corrupt)


def _everything(managers: Collection[TableDataManager]) -> Iterator[tuple[TableDataManager, str, int]]:
    for manager in list(managers):
        for key, segment in list(manager.segments.segments.items()):
            yield manager, key, segment.size_bytes
