"""What opening a segment costs, beside another version of the runtime: `python -m tests.bench.segment_open [RUNTIME]`.

RUNTIME is the folder `runtime` of another checkout, such as one from before opened segments were checked; left out,
this one is measured beside itself, which shows the noise. Processes of both take turns; printed is the CPU time of an
operation, the median of the rounds, each the least of several loops. Files are written by the other version, so that
both can read them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROUNDS = 5
LOOPS = 3
LOOP_S = 0.08
OWN = Path(__file__).resolve().parents[2] / "runtime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", default=OWN)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build is not None:
        build(arguments.build)
    elif arguments.measure is not None:
        print(json.dumps({name: cpu_us(work) for name, work in operations(arguments.measure)}))
    else:
        compare(arguments.other.resolve())


def compare(other: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="segment_open_") as folder:
        run(other, "--build", folder)
        rounds = [(run(other, "--measure", folder), run(OWN, "--measure", folder)) for _ in range(ROUNDS)]
    print(f"{'':24}{'other us':>10}{'this us':>10}{'ratio':>8}   least and greatest ratio")
    for name in rounds[0][0]:
        theirs, ours = (statistics.median(one[side][name] for one in rounds) for side in (0, 1))
        ratios = [one[1][name] / one[0][name] for one in rounds]
        print(f"{name:24}{theirs:10.1f}{ours:10.1f}{ours / theirs:8.2f}   {min(ratios):.2f} {max(ratios):.2f}")


def run(runtime: Path, *arguments: str) -> dict[str, float]:
    """This file in a process of its own, over that runtime."""
    environment = {**os.environ, "PYTHONPATH": str(runtime)}
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    told = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(told)) if told else {}


def cpu_us(work: Callable[[], Any]) -> float:
    """Of one call, at its best."""
    work()
    least = float("inf")
    for _ in range(LOOPS):
        number, started = 0, time.process_time()
        while time.process_time() - started < LOOP_S:
            work()
            number += 1
        least = min(least, (time.process_time() - started) / number)
    return least * 1e6


def operations(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    from merlot.segment.immutable import ImmutableSegment

    def load(path: Path) -> None:
        """As a server does with a file over 1 MB."""
        with ImmutableSegment.open(path, verify=True) as segment:
            list(segment.metadata.columns.values())

    def load_small(path: Path, content: bytes, key: Any) -> None:
        """As a server does with a smaller one."""
        ImmutableSegment.checked(str(path.parent), key, content)

    def read(path: Path, *, every: bool) -> None:
        """As a query does, of the first column or of all."""
        with ImmutableSegment.open(path) as segment:
            for name in segment.column_names if every else segment.column_names[:1]:
                column = segment.column(name)
                assert column is not None
                if column.dictionary is not None:
                    column.dict_ids()
                elif column.type in ("STRING", "JSON", "BYTES"):
                    column.strings()
                else:
                    column.values()
                if column.multi_value:
                    column.offsets()

    for path in sorted(folder.glob("*.mseg")):
        with ImmutableSegment.open(path) as segment:
            key, kind = segment.key, str(segment.key.name)
        content = path.read_bytes()
        yield f"{kind}: load", lambda path=path: load(path)
        yield f"{kind}: load as small", lambda path=path, content=content, key=key: load_small(path, content, key)
        yield f"{kind}: read a column", lambda path=path: read(path, every=False)
        yield f"{kind}: read all", lambda path=path: read(path, every=True)


def build(folder: Path) -> None:
    """A small segment, a wide one and a long one."""
    import numpy as np
    import pyarrow as pa

    from merlot.segment.build.builder import build_segment
    from merlot.segment.build.request import BuildRequest
    from merlot.spec.indexing import IndexingSpec
    from merlot.spec.schema import TableSchema

    def columns(number: int, times: int) -> dict[str, Any]:
        random = np.random.default_rng(7)
        found: dict[str, Any] = {}
        for copy in range(times):
            found |= {
                f"day{copy}": pa.array(np.sort(random.integers(0, 365, number)).astype(np.int32)),
                f"user{copy}": pa.array(random.integers(0, max(10, number // 3), number)),
                f"city{copy}": pa.array([f"city {one}" for one in random.integers(0, 50, number).tolist()]),
                f"url{copy}": pa.array([f"https://x/{one}" for one in random.integers(0, 9 * number, number).tolist()]),
                f"tags{copy}": pa.array([[f"t{one}", "t"] for one in random.integers(0, 20, number).tolist()]),
                f"price{copy}": pa.array(random.random(number)),
            }
        return found

    types = {"day": "INT", "user": "LONG", "city": "STRING", "url": "STRING", "tags": "STRING", "price": "DOUBLE"}
    for name, number, times in (("small", 100, 1), ("wide", 2_000, 8), ("long", 300_000, 1)):
        made = columns(number, times)
        kinds = {column: column.rstrip("0123456789") for column in made}
        fields = [
            {"name": column, "type": types[kind]} | ({"multiValue": True} if kind == "tags" else {})
            for column, kind in kinds.items()
        ]
        indexing = IndexingSpec(
            sorted_columns=("day0",),
            inverted=tuple(column for column, kind in kinds.items() if kind == "city"),
            no_dictionary=tuple(column for column, kind in kinds.items() if kind in {"url", "price"}),
        )
        schema = TableSchema.model_validate({"fields": fields})
        build_segment(BuildRequest(name=name, table="t", schema=schema, indexing=indexing), pa.table(made), folder)


if __name__ == "__main__":
    main()
