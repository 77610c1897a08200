"""Run `merlot` with a controller that cleans up all the time: it looks at everything four times a second, and keeps
unused files for MERLOT_HASTY_GRACE_S seconds.
"""

from __future__ import annotations

import os
from typing import Any, Final

from merlot.controller import role
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.loop import LoopConfig

GRACE: Final = "MERLOT_HASTY_GRACE_S"
RESYNC_S: Final = 0.25


def hasty(**fields: Any) -> LoopConfig:
    """Return a controller's durations with all those shortened that end in a deletion."""
    grace_s = float(os.environ[GRACE])
    cleaning = CleaningConfig(
        replaced_s=grace_s, replaced_refresh_s=grace_s, abandoned_s=grace_s, orphan_s=grace_s, orphan_scan_s=0
    )
    return LoopConfig(**fields | {"resync_s": RESYNC_S, "file_grace_s": grace_s, "cleaning": cleaning})


def main() -> None:
    """Run `merlot` with the short durations."""
    from merlot.cli.main import main as merlot

    vars(role)["LoopConfig"] = hasty
    merlot()


if __name__ == "__main__":
    main()
