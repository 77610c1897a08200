"""Write the golden segment of the current format version: `python -m tests.golden.make_segment_golden`.

Run it once, when FORMAT_VERSION was raised; files of older versions stay as they are.
"""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.layout import FORMAT_VERSION
from merlot.segment.metadata import CreationFacts
from merlot.spec.indexing import Compression, Encoding, IndexingSpec, PartitionFunctionSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

RAW = (TypeName.INT, TypeName.LONG, TypeName.DOUBLE, TypeName.STRING)
FOLDER = Path(__file__).parent
NUM_DOCS = 16_500
"""Two blocks, so that zone maps are written."""


def schema() -> TableSchema:
    """Every type, single and multi-value, and a raw twin of some."""
    kinds = [name for name in TypeName if name is not TypeName.UNKNOWN]
    return TableSchema(
        fields=(
            FieldSpec(name="day", type=TypeName.INT, role=FieldRole.DATE_TIME, format="EPOCH|DAYS"),
            *(FieldSpec(name=f"one_{name.lower()}", type=name) for name in kinds),
            *(FieldSpec(name=f"many_{name.lower()}", type=name, multi_value=True) for name in kinds),
            *(FieldSpec(name=f"raw_{name.lower()}", type=name) for name in RAW),
        )
    )


def value(type_name: TypeName, doc: int) -> Any:
    """The value of a doc: few distinct ones in stretches, so that the file stays small."""
    number = doc // 50 % 5
    match type_name:
        case TypeName.FLOAT | TypeName.DOUBLE:
            return (-0.0, 0.0, float("nan"), float("-inf"), 1.5)[number]
        case TypeName.BIG_DECIMAL:
            return plain_text(Decimal(number) ** 40 / 4)
        case TypeName.BOOLEAN:
            return number > 2
        case TypeName.STRING | TypeName.JSON:
            return ("", "a", "é", "\U0001f377", "a\0")[number]
        case TypeName.BYTES:
            return bytes(range(number))
        case _:
            return (number - 2) * 1000


def cell(field: FieldSpec, doc: int) -> Any:
    """A row's value; every 997th is null but in `raw_int`, which is packed; lists have 0 to 2 elements."""
    if field.name == "day":
        return 16_000 + doc // 2000
    if doc % 997 == 3 and field.name != "raw_int":
        return None
    if field.multi_value:
        return [value(field.type, doc + position) for position in range(doc // 10 % 3)]
    return value(field.type, doc)


def rows() -> pa.Table:
    columns = {field.name: [cell(field, doc) for doc in range(NUM_DOCS)] for field in schema().fields}
    return pa.table(columns, schema=arrow_schema(schema()))


def build(directory: Path) -> BuiltSegment:
    """The golden segment, from the current builder."""
    raw = tuple(name for name in schema().names if name.startswith("raw_"))
    request = BuildRequest(
        name=f"golden_v{FORMAT_VERSION}",
        table="golden",
        schema=schema(),
        indexing=IndexingSpec(
            sorted_columns=("day",),
            inverted=("day", "one_string", "many_int"),
            encodings=dict.fromkeys(raw, Encoding.RAW),
            compression={
                **dict.fromkeys(schema().names, Compression.ZSTD),
                "one_int": Compression.NONE,
                "raw_int": Compression.NONE,
                "raw_long": Compression.LZ4,
            },
        ),
        time_column="day",
        partitioning=PartitioningSpec(
            columns={"one_int": PartitionFunctionSpec(function_name="Modulo", num_partitions=3)}
        ),
        creation=CreationFacts(host="golden", time_ms=0, builder="tests"),
    )
    return build_segment(request, rows(), directory)


if __name__ == "__main__":
    built = build(FOLDER)
    print(f"{built.path} {built.size_bytes} bytes crc {built.metadata.crc}")
