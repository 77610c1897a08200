"""Instances of the engine, each for one query at a time. They are reused: a start takes ten times as long as a small
query.

A query has its instance to itself, and so its bounds on memory, disk and threads. The relations that it names go with
its session. An instance is closed after a query that failed or spilled, and its spill folder is deleted with it
(`spill_folders`).
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from merlot.query.stages.spill_folders import SpillFolder

MOST_IDLE: Final = 4
"""Idle instances that are kept: two for small queries, which take one thread, and two for others."""


class EngineFailedError(Exception):
    """Raised if DuckDB refused or failed a statement; the text is DuckDB's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Bounds of an instance."""

    memory_bytes: int
    spill_bytes: int
    spill_folder: Path | None = None
    """Folder to which the instance spills; a temporary folder if left out."""
    threads: int = 2


class _Instance:
    """DuckDB in memory, with a spill folder of its own."""

    def __init__(self, limits: EngineLimits) -> None:
        import duckdb

        self._folder = SpillFolder(limits.spill_folder)
        try:
            self.database = duckdb.connect(":memory:", config=_config(limits, str(self._folder.path)))
            self.database.execute("SET lock_configuration = true")
        except BaseException:
            self._folder.delete()
            raise

    @property
    def is_reusable(self) -> bool:
        """True if no query needed more than its memory, and the spill folder was not deleted from outside."""
        return self._folder.is_unused

    def close(self) -> None:
        """Close the database, which frees its memory, and delete its folder."""
        self.database.close()
        self._folder.delete()


def _config(limits: EngineLimits, folder: str) -> dict[str, Any]:
    return {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
        "preserve_insertion_order": False,
        "threads": limits.threads,
        "memory_limit": f"{limits.memory_bytes}B",
        "temp_directory": folder,
        "max_temp_directory_size": f"{limits.spill_bytes}B",
    }


class Instances:
    """Pool of instances. Any thread."""

    def __init__(self) -> None:
        self._idle: list[tuple[EngineLimits, _Instance]] = []
        """Idle instances, the most recently used last."""
        self._lock = threading.Lock()

    @contextmanager
    def session(self, limits: EngineLimits) -> Iterator[Any]:
        """Yield a connection to an instance that no other query uses. Raises EngineFailedError, and the errors
        of its block."""
        import duckdb  # 80 ms and 30 MB, which processes that answer no such query need not have

        try:
            instance = self._taken(limits) or _Instance(limits)
            try:
                with instance.database.cursor() as connection:
                    yield connection
            except BaseException:
                instance.close()
                raise
        except duckdb.Error as error:
            raise EngineFailedError(str(error)) from error
        if instance.is_reusable:
            self._give_back(limits, instance)
        else:
            instance.close()

    def close(self) -> None:
        """Close the idle instances."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, instance in idle:
            instance.close()

    def _taken(self, limits: EngineLimits) -> _Instance | None:
        with self._lock:
            place = next((place for place, (given, _) in enumerate(self._idle) if given == limits), None)
            return None if place is None else self._idle.pop(place)[1]

    def _give_back(self, limits: EngineLimits, instance: _Instance) -> None:
        with self._lock:
            self._idle.append((limits, instance))
            surplus = self._idle.pop(0)[1] if len(self._idle) > MOST_IDLE else None
        if surplus is not None:
            surplus.close()


INSTANCES: Final = Instances()
atexit.register(INSTANCES.close)
