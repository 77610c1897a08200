"""Settings of the kinds of tasks that a minion has by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from merlot.minion.spark_merge import SparkLauncher
from merlot.store.deepstore import DeepStore


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """Resources of a minion's merges."""

    folder: Path
    """Directory for temporary files; belongs to the minion."""
    open_store: Callable[[str | None], DeepStore]
    """Opens the deep store of a URI; None is the cluster's own."""
    memory_bytes: int = 1 << 30
    """Memory of each merge."""
    max_parallel: int = 1
    load_timeout_s: float = 600.0
    """Seconds to wait for servers to load the outputs; then the task fails and is tried again."""
    load_look_s: float = 1.0
    spark: SparkLauncher | None = None
