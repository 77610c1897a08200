"""One end of a connection: frames in and out, room to write, and noticing that the peer is gone.

Every `tick_s` an end looks whether it has heard anything; after one silent tick it pings, after `MAX_SILENT_TICKS` the
connection is lost: so a peer that vanished without a word (power, network) is found out, though no call is under way. A
peer that takes nothing of what is written for it for `MAX_STALLED_TICKS` is lost too. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from merlot.errors import CorruptionError, UnavailableError
from merlot.wire import frames
from merlot.wire.frames import PART_BYTES, Frame, FrameReader, Hello, Kind, MessageReader
from merlot.wire.pace import FRAME_BYTES, READ_BYTES
from merlot.wire.room import RoomyProtocol

_LOG = logging.getLogger(__name__)

TICK_S: Final = 5.0
MAX_SILENT_TICKS: Final = 3
MAX_STALLED_TICKS: Final = 6
MAX_BUFFER_BYTES: Final = 1 << 20
"""Written and not yet taken by the peer; with more, writers wait."""


@dataclass(slots=True)
class _Pulse:
    """What the last ticks found."""

    num_ticks: int = 0
    was_heard: bool = True
    num_silent: int = 0
    num_stalled: int = 0
    unwritten: int = 0


class Connection(RoomyProtocol):
    """Both ends' common half. Subclasses say what messages mean, by the methods at the end."""

    def __init__(self, messages: MessageReader, *, tick_s: float = TICK_S) -> None:
        super().__init__()
        self._tick_s = tick_s
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._messages = messages
        self._pulse = _Pulse()
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        """Until when nothing is taken of what has come."""
        self._reason: str | None = None
        self.peer_hello: Hello | None = None
        self.peer = ""

    @property
    def is_open(self) -> bool:
        """Whether something that is sent now may arrive."""
        return self._transport is not None and self._reason is None

    def send(self, kind: Kind, call: int = 0, payload: bytes = b"") -> None:
        """Write a frame, room or not: for those that are small."""
        if self._transport is not None and self._reason is None:
            self._transport.write(frames.encode(kind, call, payload))

    def send_message(self, call: int, message: bytes) -> Awaitable[None] | None:
        """Write a message; what is returned, if anything, must be awaited: not all could be written at once.

        Awaiting raises UnavailableError when the connection is lost before all was written."""
        if self.has_room and len(message) <= PART_BYTES:
            self.send(Kind.LAST, call, message)
            return None
        return self._send_in_parts(call, message)

    def abort(self, reason: str) -> None:
        """Break the connection off; `lost` follows."""
        if self._reason is None:
            self._reason = reason
            if self._transport is not None:
                self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection once what is written has gone out."""
        if self._reason is None:
            self._reason = reason
            if self._transport is not None:
                self._transport.close()

    async def _send_in_parts(self, call: int, message: bytes) -> None:
        for frame in frames.cut(call, message):
            await self.room()
            if self._transport is None or self._reason is not None:
                raise UnavailableError(f"connection is lost peer={self.peer} reason={self._reason}")
            self._transport.write(frame)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = _name_of(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=MAX_BUFFER_BYTES)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def data_received(self, data: bytes) -> None:
        self._pulse.was_heard = True
        self._frames.add(data)
        self.spend(READ_BYTES + len(data))
        if self._resting is None:
            self._take_frames()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reason is None:
            self._reason = "closed by peer" if exc is None else str(exc)
        if self._timer is not None:
            self._timer.cancel()
        if self._resting is not None:
            self._resting.cancel()
        self._transport = None
        self._messages.clear()
        self.resume_writing()
        self.lost(self._reason)

    def _take_frames(self) -> None:
        """Take what has come, for as long as the peer may go on."""
        try:
            while self._reason is None and self.may_read():
                wait_s = self.wait_s()
                if wait_s:
                    self._rest(wait_s)
                    return
                frame = self._frames.next()
                if frame is None:
                    return
                self.spend(FRAME_BYTES)
                self._take(frame)
        except CorruptionError as error:
            _LOG.warning("connection broken off peer=%s cause=%s", self.peer, error)
            self.spoiled(str(error))
            self.abort(str(error))

    def _rest(self, wait_s: float) -> None:
        """Read nothing for a while: what the peer sends stays in the kernel, and then with the peer."""
        if self._transport is not None:
            self._transport.pause_reading()
            self._resting = self._loop.call_later(wait_s, self._go_on)

    def _go_on(self) -> None:
        """Take what waits here, and read again if nothing stands against it."""
        self._resting = None
        self._take_frames()
        if self._transport is not None and self._resting is None and self._reason is None and self.may_read():
            self._transport.resume_reading()

    def _take(self, frame: Frame) -> None:
        kind, call, payload = frame
        if self.peer_hello is None:
            if kind is not Kind.HELLO:
                raise CorruptionError("peer did not introduce itself")
            self.peer_hello = Hello.from_bytes(payload)
            self.greeted(self.peer_hello)
        elif kind is Kind.LAST:
            self.received(call, self._messages.last(call, payload))
        elif kind is Kind.PART:
            if self.awaits(call):
                self._messages.part(call, payload)
        elif kind is Kind.CANCEL:
            self._messages.drop(call)
            self.cancelled(call)
        elif kind is Kind.REFUSAL:
            self._messages.drop(call)
            self.refused(call, payload.decode(errors="replace"))
        elif kind is Kind.PING:
            self.send(Kind.PONG)
        elif kind is Kind.PONG:
            self.ponged()

    def _tick(self) -> None:
        pulse, transport = self._pulse, self._transport
        if transport is None:
            return
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        pulse.num_ticks += 1
        unwritten = transport.get_write_buffer_size()
        pulse.num_stalled = pulse.num_stalled + 1 if unwritten and unwritten >= pulse.unwritten > 0 else 0
        pulse.unwritten = unwritten
        pulse.num_silent = 0 if pulse.was_heard or not transport.is_reading() else pulse.num_silent + 1
        pulse.was_heard = False
        if pulse.num_silent >= MAX_SILENT_TICKS or pulse.num_stalled >= MAX_STALLED_TICKS:
            self._give_up("silent" if pulse.num_silent >= MAX_SILENT_TICKS else "not reading")
        elif self.peer_hello is None and pulse.num_ticks > MAX_SILENT_TICKS:
            self._give_up("not introducing itself")
        elif pulse.num_silent:
            self.send(Kind.PING)

    def _give_up(self, what: str) -> None:
        _LOG.warning("connection broken off peer=%s cause=peer is %s", self.peer, what)
        self.abort(f"peer is {what}")

    # What subclasses say

    def greeted(self, hello: Hello) -> None:
        """The peer has introduced itself."""
        raise NotImplementedError

    def received(self, call: int, message: bytes) -> None:
        """A whole message."""
        raise NotImplementedError

    def awaits(self, call: int) -> bool:
        """Whether parts of such a message are worth keeping."""
        return True

    def spoiled(self, reason: str) -> None:
        """What came cannot be taken; the connection is about to be broken off."""

    def spend(self, weight: int) -> None:
        """Note what the peer has had taken from it."""

    def wait_s(self) -> float:
        """How long to take nothing more from the peer; 0: it may go on."""
        return 0.0

    def may_read(self) -> bool:
        """Whether to read, as far as what is written goes."""
        return True

    def cancelled(self, call: int) -> None:
        """The peer waits no more for the call's answer."""

    def refused(self, call: int, reason: str) -> None:
        """The peer will not carry out the call."""

    def ponged(self) -> None:
        """The peer has answered a ping."""

    def lost(self, reason: str) -> None:
        """Nothing will come or go any more. Called once, if the connection was ever made."""
        raise NotImplementedError


def _name_of(address: object) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
