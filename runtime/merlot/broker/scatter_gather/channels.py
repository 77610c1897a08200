"""Open connections to servers: one channel for each, from the first call to it until the server is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from merlot.cluster.records import InstanceRecord
from merlot.errors import MerlotError, UnavailableError
from merlot.ids import InstanceId
from merlot.wire.client import ServerChannel

_LOG = logging.getLogger(__name__)

ChannelFactory = Callable[[InstanceRecord], ServerChannel]


class Channels:
    """The channels of all servers. Used on the event loop's thread only. A suspect server keeps its channel: it may
    still answer."""

    def __init__(self, factory: ChannelFactory) -> None:
        self._factory = factory
        self._records: dict[InstanceId, InstanceRecord] = {}
        self._channels: dict[InstanceId, ServerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def observe(self, records: Mapping[InstanceId, InstanceRecord]) -> None:
        """Take over the servers' records. A server with a new address, or one that has restarted, loses its old
        channel."""
        for instance, record in records.items():
            if self._records.get(instance) != record:
                self._records[instance] = record
                self._drop(instance)

    def forget(self, staying: set[InstanceId]) -> None:
        """Close the channels of all servers that are not in `staying`."""
        for instance in self._records.keys() - staying:
            del self._records[instance]
            self._drop(instance)

    def of(self, instance: InstanceId) -> ServerChannel:
        """Return the channel to a server. Raise UnavailableError if its address is not known."""
        channel = self._channels.get(instance)
        if channel is None:
            record = self._records.get(instance)
            if record is None:
                raise UnavailableError(f"server has no known address instance={instance}")
            channel = self._channels[instance] = self._factory(record)
        return channel

    async def close(self) -> None:
        """Close all channels."""
        self.forget(set())
        await asyncio.gather(*self._closing)

    def _drop(self, instance: InstanceId) -> None:
        channel = self._channels.pop(instance, None)
        if channel is not None:
            task = asyncio.create_task(_close(instance, channel))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close(instance: InstanceId, channel: ServerChannel) -> None:
    try:
        await channel.close()
    except MerlotError as error:
        _LOG.info("channel not closed cleanly instance=%s cause=%s", instance, error)
