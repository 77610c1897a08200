"""Plots of the documentation: `python -m tests.bench.plots [NAME…]` measures and draws them in docs/images.

Each is a function that returns the text of an SVG file, and raises SystemExit if what it measured is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tests.bench.plots.clickbench_ratios import clickbench_ratios
from tests.bench.plots.index_builds import index_builds
from tests.bench.plots.selectivity import selectivity
from tests.bench.plots.star_tree_leaves import star_tree_leaves
from tests.bench.plots.upsert_keys import upsert_keys
from tests.bench.report import ROOT

PLOTS: dict[str, Callable[[], str]] = {
    "upsert-keys": upsert_keys,
    "selectivity": selectivity,
    "star-tree-leaves": star_tree_leaves,
    "index-builds": index_builds,
    "clickbench-ratios": clickbench_ratios,
}


def main() -> None:
    """Draw those that are named; all if none is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(PLOTS)}; all if left out")
    names = parser.parse_args().names or list(PLOTS)
    if unknown := [name for name in names if name not in PLOTS]:
        parser.error(f"there is no plot named {', '.join(unknown)}")
    folder = ROOT / "docs" / "images"
    folder.mkdir(exist_ok=True)
    for name in names:
        path = folder / f"{name}.svg"
        path.write_text(PLOTS[name]())
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
