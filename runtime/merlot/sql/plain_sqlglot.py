"""sqlglot as its Python sources say, also where `sqlglotc` has put compiled modules beside them.

The dialect's parser is a subclass, which compiled classes do not let themselves be given. Must run before sqlglot is
imported, in any process; where nothing is compiled it does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


class _Sources(MetaPathFinder):
    """Finds modules of sqlglot by their sources alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith("sqlglot."):
            return None
        specs = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname) for folder in path)
        return next((spec for spec in specs if spec is not None), None)


def prefer_sources() -> None:
    """Have sqlglot imported from its sources; raises ImportError if its compiled form is imported already."""
    imported = sys.modules.get("sqlglot.parser")
    if imported is not None:
        if not str(imported.__file__).endswith(tuple(SOURCE_SUFFIXES)):
            raise ImportError(
                "sqlglot is imported in its compiled form: import merlot before it, or uninstall sqlglotc"
            )
        return
    package = find_spec("sqlglot")
    folders = [] if package is None else package.submodule_search_locations or []
    if any(Path(folder, f"parser{suffix}").exists() for folder in folders for suffix in EXTENSION_SUFFIXES):
        sys.meta_path.insert(0, _Sources())
