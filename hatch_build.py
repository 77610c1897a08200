"""Put the kernels' machine code of `make wheel` (build/kernels) into the wheel, which is for one platform then."""

import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface[Any]):
    """Adds a folder if it is there: an editable installation and an image have their code elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder; hatchling calls this before it builds."""
        code = Path(self.root) / "build" / "kernels"
        if version == "editable" or not code.is_dir():
            return
        build_data["force_include"][str(code)] = "merlot/kernels/compiled"
        # numba's files depend on the version of Python, and on no library of the system.
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{python}-none-{PLATFORMS[sys.platform].format(platform.machine())}"


PLATFORMS = {"linux": "manylinux2014_{}", "darwin": "macosx_11_0_{}"}
