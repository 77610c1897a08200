"""`merlot` in the network namespace that MERLOT_TEST_NAMESPACE names, if any: a process that runs this."""

from __future__ import annotations

import os
from typing import Final

from tests.faults.networks import move_to

NAMESPACE: Final = "MERLOT_TEST_NAMESPACE"


def main() -> None:
    """Move, then be `merlot`."""
    if NAMESPACE in os.environ:
        move_to(os.environ[NAMESPACE])
    from merlot.cli.main import main as merlot

    merlot()


if __name__ == "__main__":
    main()
