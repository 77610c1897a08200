"""Clients of the streams that a table's partitions read, shared by all partitions. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from merlot.spec.stream import StreamIngestion
from merlot.streams.allowed import AllowedStreams
from merlot.streams.opening import open_stream
from merlot.streams.protocol import StreamClient


@dataclass(frozen=True, slots=True)
class _Client:
    stream: StreamClient
    secrets: Mapping[str, str] = field(repr=False)


class StreamClients:
    """Clients of streams: one for all partitions of the same settings and the same contents of their Secret."""

    def __init__(
        self,
        secrets_of: Callable[[str], Mapping[str, str]],
        allowed: AllowedStreams,
        recorded_id: Callable[[], str] = lambda: "",
    ) -> None:
        """`secrets_of` returns a Secret's properties as they are now, by its name. `recorded_id` returns the topic's id
        in shared state, empty if there is none; it blocks."""
        self._read = secrets_of
        self._allowed = allowed
        self._clients: dict[str, _Client] = {}
        self._recorded_id = recorded_id
        self.identity = ""
        """Id of the topic as it was recorded, or first seen. Streams that are opened later must have it."""
        self._lock = threading.Lock()

    def of(self, declared: StreamIngestion) -> StreamClient:
        """Return the stream. If the Secret has changed, a new client logs in with what it says now; at the latest when
        the old login is refused. Raises InvalidInputError, NotFoundError or UnavailableError if the client cannot be
        made."""
        key, secrets = declared.model_dump_json(exclude={"flush"}), self.secrets_of(declared)
        with self._lock:
            client = self._clients.get(key)
            if client is None or client.secrets != secrets:
                self._allowed.check(declared)
                if client is not None:
                    client.stream.close()
                self.identity = self.identity or self._recorded_id()
                client = self._clients[key] = _Client(self._open(declared, secrets), secrets)
            self.identity = self.identity or client.stream.identity()
            return client.stream

    def _open(self, declared: StreamIngestion, secrets: Mapping[str, str]) -> StreamClient:
        return open_stream(declared, secrets, self.identity, self._allowed.folders)

    def secrets_of(self, declared: StreamIngestion) -> Mapping[str, str]:
        """Return the contents of the Secret that the settings name."""
        return self._read(declared.secret_ref) if declared.secret_ref else {}

    def close(self) -> None:
        """Close all clients; the owners of readers close these."""
        with self._lock:
            while self._clients:
                self._clients.popitem()[1].stream.close()
