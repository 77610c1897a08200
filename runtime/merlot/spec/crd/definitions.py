"""Write the CustomResourceDefinitions from the models: `python -m merlot.spec.crd [--check] DIRECTORY`."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from merlot.spec.crd.rollup import rollup_crd
from merlot.spec.crd.structural import KEYWORDS, structural
from merlot.spec.crd.table import table_crd
from merlot.spec.crd.upsert import upsert_crd

__all__ = ["KEYWORDS", "files", "main", "render", "rollup_crd", "structural", "table_crd", "upsert_crd"]

HEADER = "# Generated from the models in runtime/merlot/spec by `make crds`; do not edit.\n"


class _DumperWithoutAliases(yaml.SafeDumper):
    """YAML dumper that repeats a part used several times, instead of writing an anchor and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(definition: Mapping[str, Any]) -> str:
    """Return the YAML text of a CustomResourceDefinition, with the header."""
    return HEADER + yaml.dump(definition, Dumper=_DumperWithoutAliases, sort_keys=False, width=120, allow_unicode=True)


def files() -> dict[str, str]:
    """Return the text of every generated file, by file name."""
    return {
        "table.yaml": render(table_crd()),
        "mergerolluptask.yaml": render(rollup_crd()),
        "upsertconfig.yaml": render(upsert_crd()),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with --check report which of them differ; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m merlot.spec.crd", description="Write CRDs from the models.")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if a file is not what the models say"
    )
    options = parser.parse_args(arguments)
    stale = [name for name, text in files().items() if _read(options.directory / name) != text]
    if options.check:
        for name in stale:
            sys.stderr.write(f"{options.directory / name} differs from the models: run `make crds`\n")
        return 1 if stale else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (options.directory / name).write_text(files()[name])
    return 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
