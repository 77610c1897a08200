"""One end of a connection: frames in and out, flow control, and detection of a lost peer.

Every `tick_s` an end checks whether it has received anything. After one silent tick it pings; after `MAX_SILENT_TICKS`
the connection is lost. So a peer that vanished without a word (power, network) is noticed even if no call is under way.
A peer that reads nothing of its pending bytes for `MAX_STALLED_TICKS` is lost too. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from merlot.errors import CorruptionError, UnavailableError
from merlot.wire import frames
from merlot.wire.flow_control import FlowControlledProtocol
from merlot.wire.frames import PART_BYTES, Frame, FrameKind, FrameReader, Hello, MessageReader
from merlot.wire.pace import FRAME_BYTES, READ_BYTES

_LOG = logging.getLogger(__name__)

TICK_S: Final = 5.0
MAX_SILENT_TICKS: Final = 3
MAX_STALLED_TICKS: Final = 6
MAX_BUFFER_BYTES: Final = 1 << 20
"""Bytes that are written and that the peer has not read yet; above it, writers wait."""


@dataclass(slots=True)
class _Pulse:
    """Observations of the last ticks."""

    num_ticks: int = 0
    was_heard: bool = True
    num_silent: int = 0
    num_stalled: int = 0
    unwritten: int = 0
    num_taken: int = 0
    """Bytes that had left for the peer. The unwritten bytes alone do not show that it reads: writers add new ones."""


class Connection(FlowControlledProtocol):
    """Base of both ends. Subclasses handle messages by overriding the methods at the end."""

    def __init__(
        self, messages: MessageReader, *, tick_s: float = TICK_S, buffer_bytes: int = MAX_BUFFER_BYTES
    ) -> None:
        super().__init__()
        self._buffer_bytes = buffer_bytes
        self._tick_s = tick_s
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._messages = messages
        self._pulse = _Pulse()
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        """Timer of a pause in which no received frame is handled."""
        self._reason: str | None = None
        self._num_written = 0
        """Bytes given to the transport since the connection was made."""
        self.peer_hello: Hello | None = None
        self.peer = ""

    @property
    def is_open(self) -> bool:
        """True if a frame that is sent now may arrive."""
        return self._transport is not None and self._reason is None

    def send(self, kind: FrameKind, call: int = 0, payload: bytes = b"") -> None:
        """Write a small frame, without waiting for room."""
        if self._transport is not None and self._reason is None:
            self._write(self._transport, frames.encode(kind, call, payload))

    def send_message(self, call: int, message: bytes) -> Awaitable[None] | None:
        """Write a message. If not all of it can be written at once, return an awaitable that writes the rest.

        It must be awaited, and raises UnavailableError if the connection is lost before all is written."""
        if self.can_write and len(message) <= PART_BYTES:
            self.send(FrameKind.LAST, call, message)
            return None
        return self._send_in_parts(call, message)

    def abort(self, reason: str) -> None:
        """Break the connection off; `lost` is called afterwards."""
        if self._reason is None:
            self._reason = reason
            if self._transport is not None:
                self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection once its pending bytes are written."""
        if self._reason is None:
            self._reason = reason
            if self._transport is not None:
                self._transport.close()

    async def _send_in_parts(self, call: int, message: bytes) -> None:
        for frame in frames.cut(call, message):
            await self.wait_until_writable()
            if self._transport is None or self._reason is not None:
                raise UnavailableError(f"connection is lost peer={self.peer} reason={self._reason}")
            self._write(self._transport, frame)

    def _write(self, transport: asyncio.Transport, frame: bytes) -> None:
        self._num_written += len(frame)
        transport.write(frame)

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = _name_of(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=self._buffer_bytes)
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
        """Handle received frames, for as long as the peer may go on."""
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
        """Pause reading: the peer's bytes stay in the kernel, and then with the peer."""
        if self._transport is not None:
            self._transport.pause_reading()
            self._resting = self._loop.call_later(wait_s, self._go_on)

    def _go_on(self) -> None:
        """Handle the frames that wait here, and resume reading unless the pause goes on."""
        self._resting = None
        self._take_frames()
        if self._transport is not None and self._resting is None and self._reason is None and self.may_read():
            self._transport.resume_reading()

    def _take(self, frame: Frame) -> None:
        kind, call, payload = frame
        if kind is None:
            return
        if self.peer_hello is None:
            if kind is not FrameKind.HELLO:
                raise CorruptionError("peer did not introduce itself")
            self.peer_hello = Hello.from_bytes(payload)
            self.greeted(self.peer_hello)
        elif kind is FrameKind.LAST:
            self.received(call, self._messages.last(call, payload))
        elif kind is FrameKind.PART:
            if self.awaits(call):
                self._messages.part(call, payload)
        elif kind is FrameKind.CANCEL:
            self._messages.drop(call)
            self.cancelled(call)
        elif kind is FrameKind.REFUSAL:
            self._messages.drop(call)
            self.refused(call, payload.decode(errors="replace"))
        elif kind is FrameKind.PING:
            self.send(FrameKind.PONG)
        elif kind is FrameKind.PONG:
            self.ponged()

    def _tick(self) -> None:
        pulse, transport = self._pulse, self._transport
        if transport is None:
            return
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        pulse.num_ticks += 1
        unwritten = transport.get_write_buffer_size()
        num_taken = self._num_written - unwritten
        is_stalled = bool(unwritten and pulse.unwritten) and num_taken <= pulse.num_taken
        pulse.num_stalled = pulse.num_stalled + 1 if is_stalled else 0
        pulse.unwritten, pulse.num_taken = unwritten, num_taken
        pulse.num_silent = 0 if pulse.was_heard or not transport.is_reading() else pulse.num_silent + 1
        pulse.was_heard = False
        if pulse.num_silent >= MAX_SILENT_TICKS or pulse.num_stalled >= MAX_STALLED_TICKS:
            self._give_up("silent" if pulse.num_silent >= MAX_SILENT_TICKS else "not reading")
        elif self.peer_hello is None and pulse.num_ticks > MAX_SILENT_TICKS:
            self._give_up("not introducing itself")
        elif pulse.num_silent:
            self.send(FrameKind.PING)

    def _give_up(self, what: str) -> None:
        _LOG.warning("connection broken off peer=%s cause=peer is %s", self.peer, what)
        self.abort(f"peer is {what}")

    # Callbacks of subclasses

    def greeted(self, hello: Hello) -> None:
        """Called when the peer has introduced itself."""
        raise NotImplementedError

    def received(self, call: int, message: bytes) -> None:
        """Called with each whole message."""
        raise NotImplementedError

    def awaits(self, call: int) -> bool:
        """Return True if parts of the call's message are worth keeping."""
        return True

    def spoiled(self, reason: str) -> None:
        """Called when received bytes are corrupt, before the connection is broken off."""

    def spend(self, weight: int) -> None:
        """Charge the peer for bytes that were received from it."""

    def wait_s(self) -> float:
        """Return how many seconds to handle no frame of the peer; 0 if it may go on."""
        return 0.0

    def may_read(self) -> bool:
        """Return True if reading may go on, as far as pending writes are concerned."""
        return True

    def cancelled(self, call: int) -> None:
        """Called when the peer no longer waits for the call's answer."""

    def refused(self, call: int, reason: str) -> None:
        """Called when the peer will not carry out the call."""

    def ponged(self) -> None:
        """Called when the peer has answered a ping."""

    def lost(self, reason: str) -> None:
        """Called once when the connection is lost, if it was ever made. Nothing is sent or received afterwards."""
        raise NotImplementedError


def _name_of(address: object) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
