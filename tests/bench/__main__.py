"""Run the benchmarks one after another: `python -m tests.bench [--quick] [NAME …]`.

Each has its own process, so that none warms another. Results are printed and kept in build/bench/<name>.json.
"""

import argparse
import subprocess
import sys
from pathlib import Path

NAMES = (
    "ssb",
    "clickbench",
    "tpch",
    "flights_queries",
    "segment_build",
    "point_query",
    "pruning",
    "metastore",
    "merge",
    "merge_generator",
    "small_segments",
    "flights_rollup",
    "hostile",
    "concurrent_queries",
    "consuming",
    "star_tree",
    "indexes",
)
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Merlot beside its peers.")
    parser.add_argument("names", nargs="*", default=NAMES, help=f"which to run: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(NAMES)):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    failed = []
    for name in arguments.names:
        command = [sys.executable, "-m", f"tests.bench.{name}", *(["--quick"] if arguments.quick else [])]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
