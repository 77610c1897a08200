"""TLS as a layer between a transport and a protocol, for both ends of a connection.

asyncio's own layer reads 256 KiB of memory into each connection, does not count bytes that the peer has not read once
they are encrypted, and tells of a connection only when its handshake is over; limits of connections, memory and time
rest on all three. Here encrypted bytes go to the transport at once, so that its buffer and its flow control are the
connection's, and subclasses see a connection as soon as it is accepted. A connection ends when either side says so; an
end without TLS's farewell counts as an end, since HTTP and frames know themselves where a message ends. Used on one
event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final

from merlot.security.tls import HANDSHAKE_S

READ_BYTES: Final = 1 << 14
"""Bytes of one record of TLS, which is as much as one read returns."""
MAX_REPLY_BYTES: Final = 1 << 16
"""Most bytes of TLS's own answers (KeyUpdate, alerts) that a peer leaves unread; it pays as much to ask for them."""
WRITE_BYTES: Final = 1 << 18
"""Bytes that are encrypted at a time: a large answer is not in memory a third time."""


class TlsConnection(asyncio.Protocol):
    """One end of a connection. `make_protocol` is called once the handshake is over, and its protocol gets a transport
    like any other. A client names the server that it calls; `on_failure` is called if the handshake fails."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        server_name: str | None = None,
        handshake_s: float = HANDSHAKE_S,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._make_protocol = make_protocol
        self._on_failure = on_failure
        self._handshake_s = handshake_s
        self._deadline: asyncio.TimerHandle | None = None
        self._raw: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._reply_bytes = 0
        """Bytes of TLS's own answers since the peer last read everything."""
        self.is_closing = False
        self.protocol: asyncio.Protocol | None = None
        """Protocol of the bytes inside; None until the handshake is over."""

    # Hooks of subclasses

    def begun(self, raw: asyncio.Transport) -> bool:
        """Called when the connection is accepted; return False to break it off."""
        return True

    def settled(self) -> None:
        """Called once, when the handshake is over or the connection is lost before."""

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._raw = transport
        self._deadline = asyncio.get_running_loop().call_later(self._handshake_s, self._give_up)
        if not self.begun(transport):
            transport.abort()
            return
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        self._incoming.write(data)
        if self.protocol is None:
            self._shake_hands()
        else:
            self._decrypt()

    def eof_received(self) -> bool | None:
        if self.protocol is not None and not self.is_closing:
            self.protocol.eof_received()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closing = True
        self._raw = None
        error = self._error or exc
        if self.protocol is not None:
            self.protocol.connection_lost(error)
            return
        self._settle()
        if self._on_failure is not None:
            self._on_failure(error or ConnectionResetError("the peer closed the connection during the TLS handshake"))

    def pause_writing(self) -> None:
        if self.protocol is not None:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self.protocol is not None:
            self.protocol.resume_writing()

    # Calls of the transport

    @property
    def raw(self) -> asyncio.Transport | None:
        """Transport of the encrypted bytes; None before and after the connection."""
        return self._raw

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt bytes and pass them on."""
        if self.is_closing or not data:
            return
        with memoryview(data).cast("B") as view:
            for start in range(0, len(view), WRITE_BYTES):
                try:
                    self._tls.write(view[start : start + WRITE_BYTES])
                except ssl.SSLError as error:
                    self.fail(error)
                    return
                self._flush()

    def close(self) -> None:
        """Say farewell, and close once all is written."""
        if self.is_closing:
            return
        self.is_closing = True
        if self.protocol is not None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # raises, since the peer's farewell is not waited for
        self._flush()
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        """Break off."""
        self.is_closing = True
        if self._raw is not None:
            self._raw.abort()

    def fail(self, error: Exception) -> None:
        """Send TLS's alert, and close; `error` is the reason."""
        self._error = self._error or error
        self.is_closing = True
        self._flush()
        if self._raw is not None:
            self._raw.close()

    def extra(self, name: str, default: Any) -> Any:
        """Return a fact of the connection: those of TLS, then those of the transport."""
        match name:
            case "sslcontext":
                return self._context
            case "ssl_object":
                return self._tls
            case "peercert":
                return self._tls.getpeercert()
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self.fail(error)
            return
        self._flush()
        self._settle()
        self.protocol = self._make_protocol()
        self.protocol.connection_made(TlsTransport(self))
        self._decrypt()

    def _decrypt(self) -> None:
        """Pass on what can be decrypted, in one piece."""
        pieces: list[bytes] = []
        is_over, error = False, None
        try:
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(READ_BYTES)
                if not piece:
                    is_over = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_over = True
        except ssl.SSLError as failure:
            error = failure
        self._reply()
        if pieces and self.protocol is not None and not self.is_closing:
            self.protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if error is not None:
            self.fail(error)
        elif is_over and not self.is_closing:
            self.eof_received()
            self.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def _reply(self) -> None:
        """Pass on what TLS itself answers. A peer that makes it answer, and does not read, is cut off."""
        if not self._outgoing.pending or self._raw is None:
            return
        if not self._raw.get_write_buffer_size():
            self._reply_bytes = 0
        self._reply_bytes += self._outgoing.pending
        if self._reply_bytes > MAX_REPLY_BYTES:
            self._error = ConnectionAbortedError("the peer asks for new keys and does not read the answers")
            self.abort()
            return
        self._flush()

    def _give_up(self) -> None:
        self._error = TimeoutError(f"no TLS handshake within {self._handshake_s:g} s")
        self.abort()

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self.settled()


class TlsTransport(asyncio.Transport):
    """Transport of the bytes inside a TLS connection. Limits and sizes of its buffer are those of encrypted bytes."""

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.extra(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._connection.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._connection.protocol is not None
        return self._connection.protocol

    def is_closing(self) -> bool:
        return self._connection.is_closing

    def close(self) -> None:
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.write(data)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        raw = self._connection.raw
        return 0 if raw is None else raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        raw = self._connection.raw
        return (0, 0) if raw is None else raw.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        raw = self._connection.raw
        if raw is not None:
            raw.set_write_buffer_limits(high, low)

    def is_reading(self) -> bool:
        raw = self._connection.raw
        return raw is not None and raw.is_reading()

    def pause_reading(self) -> None:
        raw = self._connection.raw
        if raw is not None:
            raw.pause_reading()

    def resume_reading(self) -> None:
        raw = self._connection.raw
        if raw is not None:
            raw.resume_reading()
