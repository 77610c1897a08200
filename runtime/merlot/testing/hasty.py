"""`merlot` whose controller cleans up all the time: a process that runs this looks at everything four times a second,
and keeps what is out of use for as many seconds as MERLOT_HASTY_GRACE_S says."""

from __future__ import annotations

import os
from typing import Any, Final

from merlot.controller import role
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.loop import LoopConfig

GRACE: Final = "MERLOT_HASTY_GRACE_S"
RESYNC_S: Final = 0.25


def hasty(**fields: Any) -> LoopConfig:
    """Take a controller's durations, and shorten all that end in a deletion."""
    grace_s = float(os.environ[GRACE])
    cleaning = CleaningConfig(
        replaced_s=grace_s, replaced_refresh_s=grace_s, abandoned_s=grace_s, orphan_s=grace_s, orphan_scan_s=0
    )
    return LoopConfig(**fields | {"resync_s": RESYNC_S, "file_grace_s": grace_s, "cleaning": cleaning})


def main() -> None:
    """As `merlot`."""
    from merlot.cli.main import main as merlot

    vars(role)["LoopConfig"] = hasty
    merlot()


if __name__ == "__main__":
    main()
