"""Folders to which instances of the engine spill. A folder goes with its instance; if the process is killed, the next
start clears it.

A process holds a lock on each of its folders, which the kernel releases when the process ends, however it ends. So a
folder that can be locked belongs to nobody. Process ids would not do: in a container, every start has the same one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "merlot-stages-"
_LOG = logging.getLogger(__name__)


class SpillFolder:
    """Locked folder of one instance."""

    def __init__(self, parent: Path | None) -> None:
        """Create a folder within `parent`, the folder for temporary files by default. Raise OSError."""
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = _locked(self.path, wait=True)
            # Another process may have taken the folder for abandoned before it was locked.
            if self.path.is_dir():
                return
            self._unlock()

    @property
    def is_unused(self) -> bool:
        """True if nothing was spilled, and the folder was not deleted from outside."""
        try:
            return not os.listdir(self.path)
        except OSError:
            return False

    def delete(self) -> None:
        """Delete the folder with its files."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)


def clear_abandoned(parent: Path | None = None) -> int:
    """Delete the folders within `parent` whose processes have ended. Return how many there were."""
    num_cleared = 0
    for path in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = _locked(path, wait=False)
        if lock is None:
            continue
        try:
            shutil.rmtree(path, ignore_errors=True)
            num_cleared += not path.exists()
        finally:
            os.close(lock)
    if num_cleared:
        _LOG.warning("cleared spill folders of processes that were killed number=%d", num_cleared)
    return num_cleared


def _locked(path: Path, *, wait: bool) -> int | None:
    """Return the descriptor that holds the folder's lock; None if another process holds it, there is no folder, or the
    file system has no locks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
