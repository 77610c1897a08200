"""Random tables of many wide columns, stored in random ways, and random keys to group them by."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.sql.slt_data import Dataset, arrow_type

from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

_TYPES = tuple(one for one in TypeName if one not in (TypeName.UNKNOWN, TypeName.JSON))
_LISTS = (TypeName.STRING, TypeName.LONG, TypeName.DOUBLE)
NAMES = (*(f"{one.lower()}{number}" for one in _TYPES for number in range(2)), *(f"{one.lower()}s" for one in _LISTS))
_MOMENT = 1356998400000


def random_table(generator: random.Random) -> Dataset:
    """Two columns of each type, one of few values and one of many, and lists."""
    fields: list[dict[str, Any]] = [
        {"name": f"{one.lower()}{n}", "type": one.value} for one in _TYPES for n in range(2)
    ]
    fields += [{"name": f"{one.lower()}s", "type": one.value, "multiValue": True} for one in _LISTS]
    schema = TableSchema.model_validate({"fields": fields})
    num_rows = generator.choice((1, 5, 60, 700))
    columns: list[pa.Array] = []
    for place, field in enumerate(schema.fields):
        pool = [_value(field.type, generator) for _ in range(3 if place % 2 else num_rows)]
        share = generator.choice((0.0, 0.0, 0.2, 1.0))

        def cell(pool: list[Any] = pool, share: float = share, is_list: bool = field.multi_value) -> Any:
            if is_list:
                return generator.choices(pool, k=generator.randrange(1, 4))
            return None if generator.random() < share else generator.choice(pool)

        columns.append(pa.array([cell() for _ in range(num_rows)], arrow_type(field)))
    # A row and its like, so that there are groups of several.
    rows = pa.table(columns, names=list(schema.names))
    rows = rows.take(pa.array([generator.randrange(num_rows) for _ in range(2 * num_rows)]))
    return Dataset(name="wide", schema=schema, rows=rows)


def _value(type_: TypeName, generator: random.Random) -> Any:
    match type_:
        case TypeName.INT:
            return generator.choice((generator.randrange(-(2**31), 2**31), -(2**31), 2**31 - 1))
        case TypeName.LONG:
            return generator.choice((generator.randrange(-(2**63), 2**63), -(2**63), 2**63 - 1))
        case TypeName.FLOAT:
            return generator.choice((0.0, -0.0, float("nan"), generator.randrange(-(2**20), 2**20) / 8))
        case TypeName.DOUBLE:
            return generator.choice((0.0, -0.0, float("nan"), float("-inf"), generator.uniform(-1e9, 1e9)))
        case TypeName.BIG_DECIMAL:
            return format(Decimal(generator.randrange(-(10**15), 10**15)) / 10**4, "f")
        case TypeName.BOOLEAN:
            return generator.random() < 0.5
        case TypeName.TIMESTAMP:
            return _MOMENT + generator.randrange(10**10)
        case TypeName.BYTES:
            return generator.randbytes(generator.randrange(4))
    return generator.choice(("", "a", "é", "a\0b", f"{generator.randrange(10**6)}"))


def random_segments(dataset: Dataset, folder: Path, generator: random.Random) -> list[ImmutableSegment]:
    """The rows cut at random, each segment in an encoding of its own."""
    rows = dataset.rows.num_rows
    edges = [0, *sorted(generator.randrange(rows + 1) for _ in range(generator.choice((0, 0, 2, 9)))), rows]
    segments = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        raw = tuple(name for name in NAMES if generator.random() < generator.choice((0.0, 0.5, 1.0)))
        request = BuildRequest(
            name=f"wide_{number}", table="wide", schema=dataset.schema, indexing=IndexingSpec(no_dictionary=raw)
        )
        segments.append(
            ImmutableSegment.open(build_segment(request, dataset.rows.slice(start, end - start), folder).path)
        )
    return segments


def random_keys(generator: random.Random) -> tuple[str, str]:
    """A query and its like for DuckDB, which has lists taken apart."""
    names = generator.sample(NAMES, generator.choice((1, 2, 5, 12, len(NAMES))))
    source = "wide"
    theirs = []
    for name in names:
        if name.endswith("s"):
            source = f"(SELECT *, unnest({name}) AS one_{name} FROM {source})"
            theirs.append(f"one_{name}")
        else:
            theirs.append(name)
    counts = "COUNT(*), MAX(int0)"
    ours = f"SELECT {', '.join(names)}, {counts} FROM wide GROUP BY {', '.join(names)} LIMIT 1000000"
    return ours, f"SELECT {', '.join(theirs)}, {counts} FROM {source} GROUP BY {', '.join(theirs)}"
