"""Plans of queries as text files: which access serves each predicate, on each layout.

A `.plans` file has queries, each in lines that begin in the first column; `#` begins a comment. Indented below a query
stands what EXPLAIN tells of each layout, segments with the same plan counted. `make plans` writes what is indented
anew; `python -m tests.plans.plan_fixtures --check`, and a test, compare.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.explain import Row, explain, left_out
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.server.pruning import SetStatistics, prune
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

FILES = sorted(Path(__file__).parent.glob("*.plans"))
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "day", "type": "INT"},
            {"name": "city", "type": "STRING"},
            {"name": "level", "type": "STRING"},
            {"name": "agent", "type": "LONG"},
            {"name": "price", "type": "DOUBLE"},
            {"name": "note", "type": "STRING"},
            {"name": "tags", "type": "STRING", "multiValue": True},
            {"name": "sold", "type": "INT", "role": "metric"},
        ]
    }
)
_INDEXED = IndexingSpec(sorted_columns=("day",), inverted=("city", "agent"), no_dictionary=("price", "note"))
_PLAIN = IndexingSpec()
_TREES = IndexingSpec.model_validate(
    {
        "inverted": ["city"],
        "starTreeIndexConfigs": [
            {"dimensionsSplitOrder": ["level", "day"], "functionColumnPairs": ["COUNT__*", "AVG__sold"]},
            {
                "dimensionsSplitOrder": ["day", "level", "note"],
                "functionColumnPairs": ["SUM__sold", "MAX__sold"],
                "maxLeafRecords": 100,
            },
            {"dimensionsSplitOrder": ["note", "day"], "functionColumnPairs": ["SUM__sold"]},
        ],
    }
)
_RAW = IndexingSpec(no_dictionary=("day", "city", "level", "agent", "price", "note", "tags", "sold"))


PAGES = TableSchema.model_validate(
    {
        "fields": [
            {"name": "session", "type": "LONG"},
            {"name": "url", "type": "STRING"},
            {"name": "words", "type": "STRING"},
            {"name": "extra", "type": "JSON"},
            {"name": "latency", "type": "INT"},
            {"name": "at", "type": "TIMESTAMP"},
        ]
    }
)
_PAGES_RAW = ("session", "url", "words", "extra", "latency")
_PAGES_PLAIN = IndexingSpec(no_dictionary=_PAGES_RAW)
_PAGES_INDEXED = IndexingSpec.model_validate(
    {
        "noDictionary": _PAGES_RAW,
        "bloom": ["session"],
        "ngram": ["url"],
        "text": ["words"],
        "jsonPaths": ["extra"],
        "range": ["latency"],
        "timestampGranularities": {"at": ["DAY"]},
    }
)
_OWN = ("star_trees", "indexes")
"""Files that have layouts of their own; all others share theirs."""


@dataclass(frozen=True)
class Layout:
    """Segments of the same rows. `is_known`: every query was asked before, so that small segments are joined.
    `file`: the one that it is for, of those that have their own."""

    name: str
    segments: Sequence[ImmutableSegment]
    is_known: bool = False
    file: str | None = None
    schema: TableSchema = SCHEMA

    def groups(self, sql: str) -> Iterator[str]:
        """What EXPLAIN tells of these segments, a line each, indented."""
        leaf = plan(bind(parse(sql), self.schema)).leaf
        context = ExecutionContext(schema=self.schema)
        kept = prune(leaf, self.segments, SetStatistics(self.segments), self.schema)
        for _ in range(2 if self.is_known else 0):
            execute(leaf, kept.segments, context)
        rows = explain(leaf, kept.segments, context)
        rows += left_out(empty=kept.num_empty, value=kept.num_by_value, limit=kept.num_by_limit)
        for row in sorted(rows, key=lambda row: (row.get("pruner") or "", -row["segments"], row.get("plan") or "")):
            yield from _lines(row)


def _lines(row: Row) -> Iterator[str]:
    if row.get("pruner") is not None:
        yield f"{row['segments']} pruned by {row['pruner']}"
        return
    yield f"{row['segments']}{' joined' if row['joined'] else ''} of {row['docs']} docs"
    for depth, operator in orjson.loads(row["plan"]):
        yield f"{'  ' * (depth + 1)}{operator}"


def rows_of(number: int) -> pa.Table:
    """Rows from a fixed seed, ascending by day; prices ascend too, but for some noise."""
    random = np.random.default_rng(20130101)
    columns = {
        "day": np.arange(number, dtype=np.int32) // 100,
        "city": [f"city {value:04}" for value in random.integers(0, 5000, number)],
        "level": [("debug", "info", "warn", "error")[value] for value in random.integers(0, 4, number)],
        "agent": random.integers(0, 1 << 40, number),
        "price": np.arange(number) / 8 + random.random(number),
        "note": [None if value == 0 else f"note {value}" for value in random.integers(0, 9, number)],
        "tags": [[f"t{value}", f"t{value // 2}"] for value in random.integers(0, 20, number)],
        "sold": random.integers(0, 500, number).astype(np.int32),
    }
    arrays = [pa.array(columns[field.name], field.type) for field in arrow_schema(SCHEMA)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(SCHEMA))


def pages_of(number: int) -> pa.Table:
    """Rows from a fixed seed in which values of every column are spread."""
    random = np.random.default_rng(20130102)
    shelves, kinds = random.integers(0, 2000, number), random.integers(0, 500, number)
    columns = {
        "session": random.integers(0, 1 << 40, number),
        "url": [f"https://shop.example/{shelf:04}/{kind:03}.html" for shelf, kind in zip(shelves, kinds, strict=True)],
        "words": [f"shelf{shelf} of kind{kind} for sale" for shelf, kind in zip(shelves, kinds, strict=True)],
        "extra": [f'{{"shelf": {shelf}, "kind": "k{kind}"}}' for shelf, kind in zip(shelves, kinds, strict=True)],
        "latency": random.integers(0, 100_000, number).astype(np.int32),
        "at": 1_356_998_400_000 + random.integers(0, 30 * 86_400_000, number),
    }
    arrays = [pa.array(columns[field.name], field.type) for field in arrow_schema(PAGES)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(PAGES))


def _pages(stack: ExitStack, folder: Path) -> Iterator[Layout]:
    """Without an index, with one of each kind, and with the same ones in a file beside a segment built without; of the
    segments of the last, a Bloom filter leaves most out."""
    rows = pages_of(40_000)

    def build(name: str, indexing: IndexingSpec, cut: pa.Table = rows) -> ImmutableSegment:
        request = BuildRequest(name=name, table="pages", schema=PAGES, indexing=indexing)
        return stack.enter_context(ImmutableSegment.open(build_segment(request, cut, folder).path))

    plain = build("pages_plain", _PAGES_PLAIN)
    made = build_sidecar(plain, plan_of(plain.metadata, _PAGES_INDEXED), _PAGES_INDEXED, folder)
    live = plain.beside(Sidecar.open(made, plain.metadata, verify=True))
    eight = [build(f"pages_{number}", _PAGES_INDEXED, rows.slice(number * 5_000, 5_000)) for number in range(8)]
    for name, segments in (
        ("no index", [plain]),
        ("every index", [build("pages_indexed", _PAGES_INDEXED)]),
        ("every index, in a sidecar", [live]),
        ("8 of every index", eight),
    ):
        yield Layout(name, segments, file="indexes", schema=PAGES)


@contextmanager
def layouts(folder: Path) -> Iterator[list[Layout]]:
    """Each layout, open."""
    rows = rows_of(40_000)
    cuts = [0, 1, *range(4_000, 40_001, 4_000)]
    thirds = [0, 13_000, 26_000, 40_000]
    with ExitStack() as stack:

        def build(name: str, indexings: Sequence[IndexingSpec], edges: Sequence[int]) -> list[ImmutableSegment]:
            opened = []
            for number, (start, stop) in enumerate(itertools.pairwise(edges)):
                indexing = indexings[number % len(indexings)]
                request = BuildRequest(name=f"{name}_{number}", table="events", schema=SCHEMA, indexing=indexing)
                built = build_segment(request, rows.slice(start, stop - start), folder)
                opened.append(stack.enter_context(ImmutableSegment.open(built.path)))
            return opened

        mixed = (_INDEXED, _PLAIN, _RAW)
        yield [
            Layout("large, indexed", build("indexed", (_INDEXED,), (0, 40_000))),
            Layout("large, raw", build("raw", (_RAW,), (0, 40_000))),
            Layout("11 small ones", build("small", mixed, cuts)),
            Layout("11 small ones, asked before", build("known", mixed, cuts), is_known=True),
            Layout("large, star-trees", build("tree", (_TREES,), (0, 40_000)), file="star_trees"),
            Layout("3, asked before", build("trees", (_TREES,), thirds), is_known=True, file="star_trees"),
            *_pages(stack, folder),
        ]


def rendered(path: Path, made: Sequence[Layout]) -> str:
    """The file as it should be."""
    out: list[str] = []
    query: list[str] = []

    def finish() -> None:
        if query:
            sql = " ".join(query)
            for layout in (one for one in made if one.file == (path.stem if path.stem in _OWN else None)):
                out.append(f"  {layout.name}")
                out.extend(f"    {line}" for line in layout.groups(sql))
            query.clear()

    for line in path.read_text().splitlines():
        is_query = bool(line) and not line[0].isspace() and line[0] != "#"
        if not is_query:
            finish()
        if is_query:
            query.append(line)
        if not line[:1].isspace():
            out.append(line)
    finish()
    return "\n".join(out).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write every file anew, or with --check say which differ; returns the exit code."""
    parser = argparse.ArgumentParser(prog="plan_fixtures.py")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not what EXPLAIN tells")
    options = parser.parse_args(arguments)
    num_stale = 0
    with tempfile.TemporaryDirectory() as folder, layouts(Path(folder)) as made:
        for path in FILES:
            before, after = path.read_text(), rendered(path, made)
            if options.check and before != after:
                sys.stderr.write(f"{path} differs from what EXPLAIN tells: run `make plans`\n")
                num_stale += 1
            elif not options.check:
                path.write_text(after)
                sys.stdout.write(f"{path.name}: {'same' if before == after else 'rewritten'}\n")
    return 1 if num_stale else 0


if __name__ == "__main__":
    sys.exit(main())
