"""A deep store in memory: it fills up, is out of reach, loses an answer, tears what is written, and rots."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from tests.simulation.metastore import Session, Weather
from tests.simulation.timeline import Timeline, VirtualClock
from tests.support.faults import ProcessDied

from merlot.errors import CorruptionError, NotFoundError, UnavailableError
from merlot.ids import SEGMENT_SUFFIX, SegmentKey, TableName
from merlot.store.retry import OutOfSpaceError

T = TypeVar("T")

URI: Final = "file:///deep"
TORN: Final = b"torn"
"""The bytes of a file that was torn or has rotted."""


@dataclass(frozen=True, slots=True)
class File:
    """A file; `written_ms` is true time, `stamp_ms` the time that the store's clock gave it."""

    data: bytes
    written_ms: int
    stamp_ms: int


class DeepStore:
    """The files. `on_write` and `on_delete` are told of every upload, and of every deletion before it happens."""

    def __init__(self, timeline: Timeline, clock: VirtualClock) -> None:
        self._timeline = timeline
        self._clock = clock
        self.files: dict[str, File] = {}
        self.is_full = self.is_away = False
        self.on_write: Callable[[str], None] = lambda url: None
        self.on_delete: Callable[[str, File], None] = lambda url, file: None

    def write(self, url: str, data: bytes) -> None:
        if self.is_away:
            raise UnavailableError("deep store cannot be reached")
        if self.is_full:
            raise OutOfSpaceError("deep store is full")
        self.files[url] = File(data, self._timeline.now_ms, self._clock.now_ms())
        self.on_write(url)

    def find(self, url: str) -> File | None:
        if self.is_away:
            raise UnavailableError("deep store cannot be reached")
        return self.files.get(url)

    def remove(self, url: str) -> None:
        found = self.find(url)
        if found is not None:
            self.on_delete(url, found)
            self.files.pop(url, None)

    def spoil(self, dice: random.Random, *, is_catalog: bool) -> None:
        """Let a file rot."""
        urls = sorted(url for url in self.files if url.endswith(SEGMENT_SUFFIX) != is_catalog)
        if urls:
            url = dice.choice(urls)
            found = self.files[url]
            self.files[url] = File(TORN, found.written_ms, found.stamp_ms)


def url_of(table: TableName, key: SegmentKey) -> str:
    return f"{URI}/{table}/{key}{SEGMENT_SUFFIX}"


class Files:
    """The deep store, as one process reaches it: in the middle of a call others may act, and the process may freeze."""

    def __init__(
        self,
        store: DeepStore,
        timeline: Timeline,
        weather: Weather,
        process: object,
        session: Session | None = None,
    ) -> None:
        """session: that of the process, which dies with it."""
        self._session = session
        self._store = store
        self._timeline = timeline
        self._weather = weather
        self._process = process

    def modified_ms(self, url: str) -> int | None:
        self._reach()
        found = self._store.find(url)
        return None if found is None else found.stamp_ms

    def delete(self, url: str) -> None:
        self._reach(freezes=True)
        self._store.remove(url)
        self._answer()

    def list(self, table: TableName) -> Sequence[str]:
        self._reach()
        self._store.find("")
        return sorted(
            url for url in self._store.files if url.endswith(SEGMENT_SUFFIX) and url.count("/") == URI.count("/") + 2
        )

    def list_below(self, table: TableName, folder: str) -> Sequence[str]:
        self._reach()
        self._store.find("")
        return sorted(url for url in self._store.files if url.startswith(f"{URI}/{table}/{folder}/"))

    def path_in(self, table: TableName, url: str) -> str | None:
        return url.removeprefix(f"{URI}/{table}/") if url.startswith(f"{URI}/{table}/") else None

    def url_below(self, table: TableName, *names: str) -> str:
        return "/".join([URI, table, *names])

    def put(self, source: Path, url: str) -> None:
        self.write(url, source.read_bytes())

    def write(self, url: str, data: bytes) -> None:
        self._reach()
        self._store.write(url, data)
        self._answer()

    def read(self, url: str, verify: Callable[[bytes], T]) -> T:
        self._reach()
        found = self._store.find(url)
        if found is None:
            raise NotFoundError(f"not in the deep store url={url}")
        if found.data == TORN:
            raise CorruptionError(f"file is torn url={url}")
        return verify(found.data)

    def _reach(self, *, freezes: bool = False) -> None:
        weather = self._weather
        if freezes and weather.chance(weather.freeze_amid_deletion):
            self._timeline.meanwhile(self._process, weather.dice.choice((5_000, 60_000, 400_000, 900_000)))
        elif weather.chance(weather.meeting):
            self._timeline.meanwhile(self._process, weather.dice.randrange(1, 4_000))
        if self._session is not None and self._session.is_dead:
            raise ProcessDied
        if weather.chance(weather.lost_request):
            raise UnavailableError("deep store does not answer")

    def _answer(self) -> None:
        if self._weather.chance(self._weather.lost_answer):
            raise UnavailableError("deep store did not answer")
