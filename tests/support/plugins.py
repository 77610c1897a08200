"""Distribution with entry points, on the import path while a test runs: plug-ins as users install them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def installed(
    folder: Path, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> Iterator[None]:
    """Make these modules (source by name) importable, and install these entry points (object by name, by group)."""
    facts = folder / "acme-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in named.items())
        for group, named in entry_points.items()
    )
    (facts / "entry_points.txt").write_text("\n".join(sections))
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        importlib.invalidate_caches()
        for name in modules:
            sys.modules.pop(name, None)
