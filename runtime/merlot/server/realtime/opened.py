"""The streams that a table's partitions read, opened once for all of them. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from merlot.spec.stream import StreamIngestion
from merlot.streams.allowed import AllowedStreams
from merlot.streams.opening import open_stream
from merlot.streams.protocol import Stream


@dataclass(frozen=True, slots=True)
class _Opened:
    stream: Stream
    secrets: Mapping[str, str] = field(repr=False)


class OpenedStreams:
    """One client for all partitions of the same settings and the same content of their Secret."""

    def __init__(
        self,
        secrets_of: Callable[[str], Mapping[str, str]],
        allowed: AllowedStreams,
        recorded_id: Callable[[], str] = lambda: "",
    ) -> None:
        """`secrets_of`: properties in a Secret as it is now, by its name. `recorded_id`: the topic's id as shared state
        has it, empty if it has none; blocks."""
        self._read = secrets_of
        self._allowed = allowed
        self._known: dict[str, _Opened] = {}
        self._recorded_id = recorded_id
        self.identity = ""
        """The topic's id as it was recorded, or first heard of: streams that are opened later hold to it."""
        self._lock = threading.Lock()

    def of(self, declared: StreamIngestion) -> Stream:
        """The stream. A reader that is opened when the Secret has changed logs in anew with what it says now: when what
        it had is refused, at the latest. InvalidInputError, NotFoundError or UnavailableError if it cannot be made."""
        key, secrets = declared.model_dump_json(exclude={"flush"}), self.secrets_of(declared)
        with self._lock:
            known = self._known.get(key)
            if known is None or known.secrets != secrets:
                self._allowed.check(declared)
                if known is not None:
                    known.stream.close()
                self.identity = self.identity or self._recorded_id()
                known = self._known[key] = _Opened(self._open(declared, secrets), secrets)
            self.identity = self.identity or known.stream.identity()
            return known.stream

    def _open(self, declared: StreamIngestion, secrets: Mapping[str, str]) -> Stream:
        return open_stream(declared, secrets, self.identity, self._allowed.folders)

    def secrets_of(self, declared: StreamIngestion) -> Mapping[str, str]:
        """What is in the Secret that it names."""
        return self._read(declared.secret_ref) if declared.secret_ref else {}

    def close(self) -> None:
        """End all clients; their readers are closed by their owners."""
        with self._lock:
            while self._known:
                self._known.popitem()[1].stream.close()
