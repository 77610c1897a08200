"""The controller's loop for tests that write and then have it make a round: first it is told of all that was written.

Watches call back on a thread of their own, one after the other. A round that overtakes them misses a change, which does
no harm where rounds go on, and breaks a test that makes one."""

import threading

from merlot.controller.loop import ControllerLoop
from merlot.testing.patience import PATIENCE_S

PATH = "/ROUND"


class ToldLoop(ControllerLoop):
    """Over a store whose watches call back in the order of the writes."""

    def round(self) -> float:
        told = threading.Event()
        watch = self._metastore.watch(PATH, told.set)
        self._metastore.create(PATH, b"")
        assert told.wait(PATIENCE_S)
        watch.cancel()
        self._metastore.delete(PATH)
        return super().round()
