"""Opens and queries segment files that lie, in a process that may die of it.

`python -m tests.oracle.forged_segments FIRST COUNT`: each number from FIRST on makes one file: a sound one, taken
apart, changed in one to three places and put together with right checksums. Every array that is read of it ends where a
page begins that nobody may touch, so that a kernel that looks one element further ends the process. Written to standard
output: the number before each case, and what is wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import random
import resource
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from tests.oracle.numbered_cases import each_case
from tests.support.forgery import Parts, expand, put_together, taken_apart
from tests.support.indexes import every_index

from merlot.errors import MerlotError
from merlot.merge.plan import MergeMode, MergePlan
from merlot.merge.task import run
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Reduce
from merlot.query.shortcuts import coalesced_segments
from merlot.query.star_trees import coalesced as coalesced_trees
from merlot.segment import buffers, immutable
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.contents import check_contents
from merlot.segment.immutable import ImmutableSegment
from merlot.server.pruning import SetStatistics, prune
from merlot.spec.indexing import Compression
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

MAX_MEMORY_BYTES = 6 << 30
SIZES = (150, 2_000, 17_000)
"""Rows of sound files."""
PROOFS = ("runs", "docs")
"""Files that once ended a process."""
NUMBERS = (0, 1, 2, 7, 63, 64, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63)
OTHERS: tuple[Any, ...] = (-1, -(2**31), None, "", "x", "NaN", 1.5, True, [], {}, 1e308, "-0", "1e5", "ff")
DTYPES = ("u1", "u2", "u4", "u8", "i1", "i4", "i8", "f4", "f8", "O", "U9", "M8[ms]", "")
ENCODINGS = ("DICTIONARY_ALIGNED", "DICTIONARY_PACKED", "DICTIONARY_RUNS", "RAW_FIXED", "RAW_PACKED", "RAW_VARIABLE")
TYPES = ("INT", "LONG", "FLOAT", "DOUBLE", "BIG_DECIMAL", "BOOLEAN", "TIMESTAMP", "STRING", "JSON", "BYTES")
FIELDS = [
    {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "sorted", "type": "INT"},
    {"name": "few", "type": "STRING"},
    {"name": "many", "type": "STRING"},
    {"name": "text", "type": "STRING"},
    {"name": "exact", "type": "BIG_DECIMAL"},
    {"name": "bytes", "type": "BYTES"},
    {"name": "maybe", "type": "INT"},
    {"name": "doc", "type": "JSON"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "marks", "type": "LONG", "multiValue": True},
    {"name": "some", "type": "LONG", "role": "metric"},
    {"name": "ratio", "type": "DOUBLE", "role": "metric"},
    {"name": "wide", "type": "FLOAT", "role": "metric"},
]
SCHEMA = TableSchema.model_validate({"fields": FIELDS})
INDEXING = every_index(
    SCHEMA,
    ("some", "text", "ratio", "marks"),
    sorted_columns=("sorted",),
    compression={"text": Compression.ZSTD, "some": Compression.LZ4},
    star_tree_index_configs=[
        {
            "dimensionsSplitOrder": ["few", "maybe", "sorted"],
            "functionColumnPairs": [
                *("COUNT__*", "SUM__some", "AVG__ratio", "MINMAXRANGE__wide", "SUM__exact", "DISTINCTCOUNTHLL__text"),
                *("PERCENTILEEST__some", "PERCENTILETDIGEST__wide"),
                *("DISTINCTCOUNTBITMAP__maybe", "DISTINCTCOUNTTHETASKETCH__text"),
            ],
            "maxLeafRecords": 5,
        },
        {"dimensionsSplitOrder": ["sorted", "bytes"], "functionColumnPairs": ["COUNT__*"], "maxLeafRecords": 1},
        {"dimensionsSplitOrder": ["$at$MONTH", "few"], "functionColumnPairs": ["SUM__some"], "maxLeafRecords": 3},
    ],
    timestamp_granularities={"at": ["DAY", "MILLISECOND"]},
)
QUERIES = (
    "SELECT at, sorted, few, many, text, exact, bytes, maybe, tags, marks, some, ratio, wide FROM t LIMIT 100000",
    "SELECT sorted, COUNT(*), SUM(some), MIN(ratio) FROM t GROUP BY sorted LIMIT 500",
    "SELECT few, maybe, COUNT(*), MAX(wide), AVG(some) FROM t GROUP BY few, maybe LIMIT 500",
    "SELECT some, text, exact, bytes, COUNT(*) FROM t GROUP BY some, text, exact, bytes LIMIT 500",
    "SELECT tags, marks, COUNT(*), DISTINCTCOUNT(few) FROM t GROUP BY tags, marks LIMIT 500",
    "SELECT DISTINCT many, exact FROM t ORDER BY exact DESC, many LIMIT 50",
    "SELECT few, some, text FROM t ORDER BY some DESC, text, ratio LIMIT 20",
    "SELECT DATETRUNC('DAY', at), MAX(some) FROM t WHERE DATETRUNC('MILLISECOND', at) > 5 GROUP BY 1 LIMIT 500",
    "SELECT COUNT(*), SUM(some), MAX(at) FROM t WHERE few = 'f2' AND maybe > 2",
    "SELECT COUNT(*), SUM(wide) FROM t WHERE few IN ('f1', 'f3', 'f9') OR maybe IN (1, 3, 4)",
    "SELECT SUM(some) FROM t WHERE tags = 'b' AND sorted BETWEEN 3 AND 9 OR text LIKE 'x1%'",
    "SELECT COUNT(*), MIN(some) FROM t WHERE some > 400 AND sorted <> 4 AND NOT many < 'm5' AND exact >= 2",
    "SELECT COUNT(*) FROM t WHERE marks > 5 AND at >= 1704067200000 AND UPPER(many) <> 'M1' AND ratio < 0.5",
    "SELECT DISTINCTCOUNT(many), DISTINCTCOUNT(bytes), COUNT(*) FROM t WHERE maybe IS NULL",
    "SELECT COUNT(*), SUM(some) FROM t WHERE JSON_MATCH(doc, '\"$.a\" BETWEEN 3 AND 7 AND \"$.b[*].c\" = ''x3''')",
    "SELECT COUNT(*) FROM t WHERE NOT JSON_MATCH(doc, '\"$.b[0].c\" = ''x3''') AND JSON_MATCH(doc, '\"$.a\" <> 9')",
    "SELECT COUNT(*) FROM t WHERE TEXT_MATCH(text, 'x1*') OR TEXT_MATCH(many, 'm015é AND NOT x')",
    "SELECT COUNT(*) FROM t WHERE many LIKE '%m015%' OR REGEXP_LIKE(text, 'x12.+34') OR doc LIKE '%\"x3\"%'",
    "SELECT COUNT(*), SUM(sorted) FROM t WHERE some BETWEEN 40 AND 44 OR ratio < 0.01 OR few BETWEEN 'f9' AND 'g'",
    "SET enableNullHandling=true; SELECT maybe, few, COUNT(maybe), SUM(maybe) FROM t GROUP BY maybe, few LIMIT 500",
    "SELECT DATETRUNC('hour', at), LENGTH(text), SUM(some + maybe) FROM t GROUP BY 1, 2 LIMIT 500",
    "SELECT SUM(some), AVG(ratio), MAX(wide), DISTINCTCOUNTHLL(text) FROM t WHERE sorted BETWEEN 1 AND 3",
    "SELECT few, sorted, SUM(exact), PERCENTILEEST(some, 50), PERCENTILETDIGEST(wide, 90) FROM t GROUP BY few, sorted",
    "SELECT maybe, COUNT(*), DISTINCTCOUNTRAWHLL(text) FROM t WHERE few <> 'f3' AND maybe < sorted GROUP BY maybe",
    "SELECT few, DISTINCTCOUNTBITMAP(maybe), DISTINCTCOUNTTHETASKETCH(text) FROM t WHERE sorted > 1 GROUP BY few",
    "SELECT DATETRUNC('MONTH', at), SUM(some) FROM t WHERE few <> 'f3' GROUP BY 1 LIMIT 500",
)
TREE_SHARE = 0.3
"""Of the changes: how many are of a column of documents of a star-tree, or of a star-tree's nodes."""


def rows(num_rows: int) -> pa.Table:
    rng = np.random.default_rng(num_rows)
    cells = [
        {
            "at": 1704067200000 + number * 60_000,
            "sorted": number // 40,
            "few": "f9" if number % 90 == 5 else f"f{number % 5}",
            "many": f"m{int(rng.integers(0, 200)):03}é",
            "text": f"x{rng.integers(0, 10**6)}" * int(rng.integers(0, 3)),
            "exact": ("-1.5", "0", "2", "10", "10.25", "-300")[number % 6],
            "bytes": bytes([number % 7, 255]),
            "maybe": None if number % 7 == 0 else number % 6,
            "doc": f'{{"a": {number % 40}, "b": [{{"c": "x{number % 9}"}}, {{"c": "y", "d": null}}]}}',
            "tags": ["a", "b", "c"][: number % 4],
            "marks": [int(mark) for mark in rng.integers(-9, 9, number % 3)],
            "some": int(rng.integers(0, 1000)),
            "ratio": float("nan") if number % 50 == 3 else float(rng.random()),
            "wide": (-0.0, 0.0, 1.5, 2.25)[number % 4],
        }
        for number in range(num_rows)
    ]
    return pa.Table.from_pylist(cells, schema=arrow_schema(SCHEMA))


def guarded(array: Any) -> Any:
    """A copy that ends where a page begins that is not to be touched, and starts behind another one."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    address = buffers.map_file.__globals__["_LIBC"].mmap(
        None, size + 2 * page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    libc = ctypes.CDLL(None)
    for wall in (address, address + page + size):
        assert libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), 0) == 0
    start = address + page + size - array.nbytes
    held = (ctypes.c_ubyte * max(1, array.nbytes)).from_address(start if array.nbytes else address + page - 1)
    weakref.finalize(held, libc.munmap, ctypes.c_void_p(address), ctypes.c_size_t(size + 2 * page)).atexit = False
    ctypes.memmove(start, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    copy = np.frombuffer(held, array.dtype, len(array))
    copy.flags.writeable = False
    return copy


def wall_arrays(*, is_checked: bool = True) -> None:
    """Have all that is read of a file, plain or decoded, stand between walls. Not is_checked: read it with full trust,
    to see that walls are found by whoever does."""
    read, decode = buffers.MappedFile.array, buffers.DecodeCache.get
    buffers.MappedFile.array = (  # type: ignore[method-assign]
        lambda file, ref, size=None: guarded(read(file, ref, size if is_checked else None))
    )
    if not is_checked:
        buffers.MappedFile.require = lambda *_: None  # type: ignore[method-assign]
        immutable.check_column = lambda *_, **__: None  # type: ignore[attr-defined]
    buffers.DecodeCache.get = (  # type: ignore[method-assign]
        lambda cache, key, made: decode(cache, key, lambda: guarded(made()))
    )


class Mutator:
    """Changes of one file."""

    def __init__(self, parts: Parts, chance: random.Random) -> None:
        self.parts = parts
        self.chance = chance
        self.changes: tuple[Callable[[], None], ...] = (
            *(self.number, self.number, self.any_field, self.docs, self.ref, self.ref, self.swap_refs),
            *(self.elements, self.elements, self.elements, self.elements, self.bytes, self.bytes, self.length),
            *(self.reorder, self.kind, self.codec, self.segment_field, self.packing, self.tree_field, self.tree_lists),
        )

    def change(self) -> None:
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            # What an earlier change broke cannot be changed again.
            with contextlib.suppress(TypeError, KeyError, IndexError, AttributeError, ValueError, OverflowError):
                self.chance.choice(self.changes)()

    def column(self) -> dict[str, Any]:
        return self.chance.choice(self._tree_columns() if self.chance.random() < TREE_SHARE else self._columns())

    def _columns(self) -> list[dict[str, Any]]:
        return [*self.parts.columns, *self.parts.content.get("derived", [])]

    def tree(self) -> dict[str, Any]:
        return self.chance.choice(self.parts.content["star_trees"])

    def _tree_columns(self) -> list[dict[str, Any]]:
        tree = self.tree()
        return [*tree["ids"], *(state for function in tree["functions"] for state in function["states"])]

    def pick(self) -> tuple[list[Any], int]:
        """A buffer, by its ref and its number."""
        owners = self._columns()
        if self.chance.random() < TREE_SHARE:
            owners = self.chance.choice(([self.tree()], self._tree_columns()))
        refs = [
            ref
            for column in owners
            for ref in column["buffers"].values()
            if isinstance(ref[0], int) and 0 <= ref[0] < len(self.parts.buffers)
        ]
        ref = self.chance.choice(refs)
        return ref, ref[0]

    def near(self, number: Any) -> Any:
        if not isinstance(number, int) or self.chance.random() < 0.4:
            return self.chance.choice(NUMBERS)
        changed = number + self.chance.choice((-1, 1, -8, 8, 64, number, 3 * number, -number, -2 * number))
        return max(-(1 << 63), min(changed, (1 << 64) - 1))  # JSON has no others

    def number(self) -> None:
        column = self.column()
        numbers = [name for name, value in column.items() if type(value) is int]
        name = self.chance.choice([*numbers, "num_nulls", "max_values_per_doc", "base", "bits"])
        column[name] = self.near(column.get(name, 0))

    def any_field(self) -> None:
        column = self.column()
        name = self.chance.choice([*column, "is_sorted", "multi_value"])
        if self.chance.random() < 0.2:
            column.pop(name, None)
        else:
            column[name] = self.chance.choice((*NUMBERS, *OTHERS))

    def docs(self) -> None:
        """More docs than there are, or fewer: told by all columns alike."""
        before = self.parts.content["num_docs"]
        docs = self.near(before)
        self.parts.content["num_docs"] = docs
        for column in self._columns():
            if column.get("total_values") == before and self.chance.random() < 0.98:
                column["total_values"] = docs

    def ref(self) -> None:
        ref, _ = self.pick()
        place = self.chance.choice((0, 1, 2))
        ref[place] = self.chance.choice(DTYPES) if place == 1 else self.near(ref[place])

    def swap_refs(self) -> None:
        (one, _), (other, _) = self.pick(), self.pick()
        one[:], other[:] = list(other), list(one)

    def plain(self) -> tuple[list[Any], int, bytearray]:
        ref, number = self.pick()
        try:
            expand(self.parts, number, ref[2] * np.dtype(ref[1]).itemsize)
        except (ValueError, TypeError, MemoryError, OverflowError):
            self.parts.codecs[number] = ""
        return ref, number, bytearray(self.parts.buffers[number])

    def elements(self) -> None:
        """Some elements become numbers that hurt."""
        ref, number, data = self.plain()
        width = int(ref[1][1:]) if str(ref[1])[1:] in ("1", "2", "4", "8") else 1
        for _ in range(self.chance.choice((1, 1, 2, 20))):
            if len(data) >= width:
                place = self.chance.randrange(len(data) // width) * width
                if self.chance.random() < 0.3:
                    place = self.chance.choice((0, len(data) // width * width - width))
                old = int.from_bytes(data[place : place + width], "little")
                new = self.near(old) % (1 << 8 * width)
                data[place : place + width] = new.to_bytes(width, "little")
        self.parts.buffers[number] = bytes(data)

    def bytes(self) -> None:
        """Some bytes become others, compressed ones too."""
        _, number = self.pick()
        data = bytearray(self.parts.buffers[number])
        for _ in range(self.chance.choice((1, 2, 9))):
            if data:
                data[self.chance.randrange(min(len(data), self.chance.choice((20, 1 << 30))))] = self.chance.randrange(
                    256
                )
        self.parts.buffers[number] = bytes(data)

    def length(self) -> None:
        """A buffer becomes shorter or longer, the footer told of it or not."""
        ref, number, data = self.plain()
        width = np.dtype(ref[1]).itemsize if ref[1] in DTYPES[:9] else 1
        more = self.chance.choice((-1, 1, -len(data) // 2 // width, 100))
        data = data[: max(0, len(data) + more * width)] if more < 0 else data + bytes(more * width)
        self.parts.buffers[number] = bytes(data)
        if self.chance.random() < 0.7 and isinstance(ref[2], int):
            ref[2] = len(data) // width

    def reorder(self) -> None:
        """Two stretches of a buffer change places."""
        _, number, data = self.plain()
        width = self.chance.choice((1, 4, 8))
        if len(data) >= 2 * width:
            one, other = (self.chance.randrange(len(data) // width) * width for _ in range(2))
            data[one : one + width], data[other : other + width] = data[other : other + width], data[one : one + width]
        self.parts.buffers[number] = bytes(data)

    def kind(self) -> None:
        column = self.column()
        match self.chance.randrange(4):
            case 0:
                column["type"] = self.chance.choice(TYPES)
            case 1:
                column["encoding"] = self.chance.choice(ENCODINGS)
            case 2:
                column["multi_value"] = not column.get("multi_value", False)
            case _:
                column["is_sorted"] = True

    def tree_field(self) -> None:
        """Another number of documents or nodes, name, type or function of a star-tree."""
        tree = self.tree()
        owner = self.chance.choice((tree, tree, *tree["functions"]))
        name = self.chance.choice(list(owner))
        if isinstance(owner[name], list):
            owner[name][self.chance.randrange(len(owner[name]))] = self.chance.choice(("many", "tags", "few", 7))
        else:
            others = (*TYPES, "sum", "count", "min", "distinctcounthll", "percentileest", "some", "x")
            owner[name] = self.near(owner[name]) if isinstance(owner[name], int) else self.chance.choice(others)

    def tree_lists(self) -> None:
        """Dimensions, functions or parts of states change places, are gone, or are there twice."""
        tree = self.tree()
        function = self.chance.choice(tree["functions"])
        among = self.chance.choice((tree["dimensions"], tree["ids"], tree["functions"], function["states"]))
        match self.chance.randrange(4):
            case 0:
                self.chance.shuffle(among)
            case 1:
                among.pop()
            case 2:
                among.append(self.chance.choice(among))
            case _:
                function["states"] = list(self.chance.choice(tree["functions"])["states"])

    def packing(self) -> None:
        """Other bounds or widths, from which sizes follow."""
        column = self.column()
        for name in self.chance.sample(("bits", "base", "min", "max", "cardinality"), 2):
            column[name] = self.near(column.get(name))

    def codec(self) -> None:
        number = self.chance.randrange(len(self.parts.codecs))
        self.parts.codecs[number] = self.chance.choice(("", "lz4", "zstd", "x", None, 7))

    def segment_field(self) -> None:
        content = self.parts.content
        match self.chance.randrange(6):
            case 0:
                content["columns"].append(self.column())
            case 1:
                content["columns"].remove(self.column())
            case 2:
                content["columns"] = self.chance.choice(([1], {}, None, [{}], "x"))
            case 3:
                content["sort_order"] = self.chance.choice((["none"], [], 7, ["few"]))
            case 4:
                content["start_time_ms"], content["end_time_ms"] = self.chance.choices((*NUMBERS, *OTHERS), k=2)
            case _:
                facts = {"function_name": "Murmur", "num_partitions": self.near(4), "partitions": [self.near(1)]}
                content["partitions"] = self.chance.choice(({"few": facts}, {"few": 1}, 7))


class Bench:
    """Sound files, and what is asked of the others."""

    def __init__(self, folder: Path, sizes: Sequence[int] = SIZES) -> None:
        self.folder = folder
        self.context = ExecutionContext(schema=SCHEMA, pool=None)
        self.plans = [plan(bind(parse(sql), SCHEMA, {})) for sql in QUERIES]
        self.sound = [self._built(number) for number in sizes]
        self.tree_plans = self.plans[-5:]
        self.others = [ImmutableSegment.open(folder / "t_150.mseg") for _ in range(5)]
        self.merged = folder / "merged"
        self.merged.mkdir()

    def _built(self, num_rows: int) -> bytes:
        request = BuildRequest(name=f"t_{num_rows}", table="t", schema=SCHEMA, indexing=INDEXING, time_column="at")
        return build_segment(request, rows(num_rows), self.folder).path.read_bytes()

    def forged(self, seed: int) -> tuple[bytes, random.Random]:
        chance = random.Random(seed)
        parts = taken_apart(self.sound[chance.choices((0, 1, 2), (95, 4, 1))[0]])
        mutator = Mutator(parts, chance)
        mutator.change()
        return put_together(parts), chance

    def prove(self, proof: str) -> None:
        """Query a file that once wrote, or read, where it must not."""
        parts = taken_apart(self.sound[0])
        if proof == "runs":
            number, _, size, _ = parts.column("sorted")["buffers"]["ids.runs"]
            parts.buffers[number] = parts.buffers[number][: 4 * (size - 1)] + (50_000_000).to_bytes(4, "little")
        else:
            parts.content["num_docs"] *= 4
            for column in parts.columns:
                column["total_values"] *= 4
        path = self.folder / "forged.mseg"
        path.write_bytes(put_together(parts))
        with ImmutableSegment.open(path, verify=True) as segment:
            self._query(self.plans[1 if proof == "runs" else 0], [segment])

    def attempt(self, seed: int) -> str:
        """Open, query, merge, check; "" if all was answered, else the first refusal."""
        file, chance = self.forged(seed)
        path = self.folder / "forged.mseg"
        path.write_bytes(file)
        refusals: list[str] = []
        coalesced_segments.SIGHTINGS, coalesced_segments.MIN_SEGMENTS = (1, 1) if chance.random() < 0.2 else (3, 4)
        coalesced_trees.SIGHTINGS = 1 if chance.random() < 0.5 else 3
        for task in self._tasks(path, chance):
            try:
                task()
            except MerlotError as error:
                refusals.append(str(error))
        return refusals[0] if refusals else ""

    def _tasks(self, path: Path, chance: random.Random) -> list[Callable[[], object]]:
        try:
            segment = ImmutableSegment.open(path, verify=True)
        except MerlotError as error:
            message = error
            return [lambda: _raise(message)]
        plans = [*chance.sample(self.plans, 2), chance.choice(self.tree_plans)]
        tasks: list[Callable[[], object]] = [lambda one=one: self._query(one, [segment]) for one in plans]
        if chance.random() < 0.2:
            tasks.append(lambda: self._query(plans[0], [*self.others, segment]))
        if chance.random() < 0.2:
            tasks.append(lambda: self._query(plans[-1], [segment, *self.others[:1]]))
        tasks.append(lambda: check_contents(segment))
        if chance.random() < 0.05:
            merge_type = chance.choice((MergeMode.CONCAT, MergeMode.ROLLUP, MergeMode.DEDUP))
            tasks.append(lambda: self._merge(path, merge_type))
        return tasks

    def _query(self, logical: Reduce, segments: list[ImmutableSegment]) -> None:
        kept = prune(logical.leaf, segments, SetStatistics(segments), SCHEMA)
        to_pinot_rows(reduce(logical, [execute(logical.leaf, kept.segments, self.context)], SCHEMA))

    def _merge(self, path: Path, merge_type: MergeMode) -> None:
        merge = MergePlan(table="t", schema=SCHEMA, indexing=INDEXING, time_column="at", merge_type=merge_type)
        for built in run(merge, [path], self.merged, lambda *_: None, lambda: False, 1 << 28):
            built.path.unlink()


def _raise(error: Exception) -> None:
    raise error


def prove() -> None:
    """Say what a process does that queries each proof, with checks and without: whether it refuses, and how it ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), SIZES[:1])
        for proof, trust in itertools.product(PROOFS, ("checked", "unchecked")):
            print(f"{proof} {trust}:", end=" ", flush=True)
            child = os.fork()
            if not child:
                _prove_and_end(bench, proof, is_checked=trust == "checked")
            print(f"ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


def _prove_and_end(bench: Bench, proof: str, *, is_checked: bool) -> NoReturn:
    try:
        wall_arrays(is_checked=is_checked)
        bench.prove(proof)
        print("answered", end=" ", flush=True)
    except MerlotError as error:
        print(f"refused {error}", end=" ", flush=True)
    finally:
        os._exit(0)


def main() -> None:
    if sys.argv[1] == "prove":
        prove()
        return
    first, count = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        wall_arrays()
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        each_case(range(first, first + count), lambda seed: "refused" if bench.attempt(seed) else "answered")


if __name__ == "__main__":
    main()
