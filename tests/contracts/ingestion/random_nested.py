"""Random columns of every type, nested or not, with the values that they hold and the JSON that these are.

A column has an Arrow type, an Avro schema where Avro has the type, and values as both writers take them.
"""

from __future__ import annotations

import base64
import json
import math
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NULL_SHARE = 0.15
DEPTH = 3
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
INT64 = 2**63 - 1
TEXTS = ("", "a", 'é"', "5", "true", "2013-01-31", "1.50", "\\", "日本\n", "nan")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of values that are not null."""

    arrow: pa.DataType
    avro: Any
    """Schema; None if Avro has no such type."""
    draw: Callable[[random.Random], Any]
    """A value, as Avro's writer takes it."""
    json: Callable[[Any], str]
    spark: bool = True
    """Whether Spark reads the type from Parquet."""
    items: Sequence[Kind] = ()


@dataclass(frozen=True)
class Column:
    """A random column and its rows."""

    kind: Kind
    values: list[Any]

    @property
    def array(self) -> pa.Array:
        return array_of(self.kind, self.values)

    @property
    def json(self) -> list[str | None]:
        """The JSON of each row; None for null."""
        return [None if value is None else self.kind.json(value) for value in self.values]


def array_of(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """Made level by level, since Arrow does not take extension types within others."""
    mask = np.array([value is None for value in values], bool)
    given = [value for value in values if value is not None]
    if pa.types.is_struct(kind.arrow):
        names = [one.name for one in kind.arrow]
        members = [
            array_of(item, [None if value is None else value[name] for value in values])
            for name, item in zip(names, kind.items, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind.arrow), mask=pa.array(mask))
    if pa.types.is_map(kind.arrow):
        pairs = [pair for value in given for pair in value.items()]
        keys = array_of(kind.items[0], [key for key, _ in pairs])
        members = array_of(kind.items[1], [member for _, member in pairs])
        return pa.MapArray.from_arrays(offsets(values), keys, members, mask=pa.array(mask))
    if pa.types.is_list(kind.arrow):
        inner = array_of(kind.items[0], [one for value in given for one in value])
        return pa.ListArray.from_arrays(offsets(values), inner, mask=pa.array(mask))
    if isinstance(kind.arrow, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind.arrow, pa.array(values, pa.binary(16)))
    return pa.array(values, kind.arrow)


def offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array(np.cumsum([0, *(0 if value is None else len(value) for value in values)]), pa.int32())


class Draw:
    """Draws columns; a seed gives the same ones always."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0

    def column(
        self, num_rows: int, *, depth: int | None = None, of: Callable[[Kind], bool] = lambda kind: True
    ) -> Column:
        """A column of types that all satisfy `of`."""
        kind = self.kind(self.random.randrange(DEPTH + 1) if depth is None else depth, of)
        return Column(kind, [self.value(kind) for _ in range(num_rows)])

    def value(self, kind: Kind) -> Any:
        return None if self.random.random() < NULL_SHARE else kind.draw(self.random)

    def kind(self, depth: int, of: Callable[[Kind], bool]) -> Kind:
        if not depth:
            return self._named(self.random.choice([one for one in LEAVES if of(one)]))
        make = self.random.choice([self._struct, self._list, self._map])
        return make(depth, of)

    def _named(self, kind: Kind) -> Kind:
        """With a name of its own in Avro, if the type needs one."""
        if not isinstance(kind.avro, dict) or "name" not in kind.avro:
            return kind
        return Kind(**{**vars(kind), "avro": {**kind.avro, "name": self._name()}})

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def _inner(self, depth: int, of: Callable[[Kind], bool]) -> Kind:
        return self.kind(self.random.randrange(depth), of)

    def _struct(self, depth: int, of: Callable[[Kind], bool]) -> Kind:
        items = {f"f{number}": self._inner(depth, of) for number in range(self.random.randrange(1, 4))}
        fields = [{"name": name, "type": nullable(one.avro)} for name, one in items.items()]
        return Kind(
            arrow=pa.struct([(name, one.arrow) for name, one in items.items()]),
            avro={"type": "record", "name": self._name(), "fields": fields} if in_avro(items.values()) else None,
            draw=lambda _: {name: self.value(one) for name, one in items.items()},
            json=lambda value: written("{}", [f'"{name}":{text_of(one, value[name])}' for name, one in items.items()]),
            spark=all(one.spark for one in items.values()),
            items=tuple(items.values()),
        )

    def _list(self, depth: int, of: Callable[[Kind], bool]) -> Kind:
        item = self._inner(depth, of)
        return Kind(
            arrow=pa.list_(item.arrow),
            avro={"type": "array", "items": nullable(item.avro)} if in_avro([item]) else None,
            draw=lambda draw: [self.value(item) for _ in range(draw.randrange(4))],
            json=lambda value: written("[]", [text_of(item, one) for one in value]),
            spark=item.spark,
            items=(item,),
        )

    def _map(self, depth: int, of: Callable[[Kind], bool]) -> Kind:
        item = self._inner(depth, of)
        return Kind(
            arrow=pa.map_(pa.string(), item.arrow),
            avro={"type": "map", "values": nullable(item.avro)} if in_avro([item]) else None,
            draw=lambda draw: {key: self.value(item) for key in draw.sample(TEXTS, draw.randrange(3))},
            json=lambda value: written("{}", [f"{quoted(key)}:{text_of(item, one)}" for key, one in value.items()]),
            spark=item.spark,
            items=(TEXT, item),
        )


def in_avro(kinds: Any) -> bool:
    return all(kind.avro is not None for kind in kinds)


def nullable(schema: Any) -> Any:
    return ["null", schema]


def text_of(kind: Kind, value: Any) -> str:
    return "null" if value is None else kind.json(value)


def written(brackets: str, parts: Sequence[str]) -> str:
    return brackets[0] + ",".join(parts) + brackets[1]


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def encoded(value: bytes) -> str:
    return quoted(base64.b64encode(value).decode())


def floats(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[repr(value)]


def shortest(kind: Any) -> Callable[[float], str]:
    return lambda value: floats(float(str(kind(value))) if math.isfinite(value) else value)


def digits(kind: Any) -> Callable[[random.Random], float]:
    """Numbers that the type of numpy has, of all sizes, and its special ones."""
    limits = np.finfo(kind)
    special = [0.0, -0.0, 1.0, 0.1, math.nan, math.inf, -math.inf, limits.max, limits.smallest_subnormal]

    def drawn(draw: random.Random) -> float:
        wide = draw.uniform(-1, 1) * 10.0 ** draw.randrange(-7, 5 if kind is np.float16 else 30)
        return float(kind(draw.choice([wide, *special])))

    return drawn


def whole(bits: int, *, signed: bool = True) -> Callable[[random.Random], int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return lambda draw: draw.choice(
        [low, high, 0, 1, draw.randint(low, high), draw.randint(low // 2**20, high // 2**20)]
    )


def ticks(per_second: int) -> Callable[[random.Random], int]:
    first, last = FIRST_DAY * 86_400 * per_second, (LAST_DAY + 1) * 86_400 * per_second - 1
    low, high = max(first, -INT64), min(last, INT64)
    return lambda draw: draw.choice(
        [low, high, 0, -1, 1, draw.randint(low, high), draw.randint(0, high // 10**3) * 1000]
    )


def instant(per_second: int) -> Callable[[int], str]:
    """`2013-01-31 23:59:59.999`, with six or nine digits where they say more than three."""

    def text(value: int) -> str:
        seconds, rest = divmod(value * (10**9 // per_second), 10**9)
        moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).replace(tzinfo=None)
        return f'"{moment.isoformat(" ")}.{trimmed(f"{rest:09}", least=3)}"'

    return text


def clock(per_second: int) -> Callable[[int], str]:
    """`23:59:59`, with three, six or nine digits where there are any."""

    def text(value: int) -> str:
        seconds, rest = divmod(value * (10**9 // per_second), 10**9)
        below = trimmed(f"{rest:09}", least=0)
        return f'"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{"." if below else ""}{below}"'

    return text


def trimmed(below: str, *, least: int) -> str:
    while len(below) > least and below.endswith("000"):
        below = below[:-3]
    return below


def times(per_second: int) -> Callable[[random.Random], int]:
    day = 86_400 * per_second
    return lambda draw: draw.choice([0, day - 1, draw.randrange(day), draw.randrange(86_400) * per_second])


def decimals(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    bound = 10**precision - 1
    return lambda draw: Decimal(f"{draw.choice([0, 1, -1, bound, -bound, draw.randint(-bound, bound)])}e-{scale}")


def plain(value: Decimal) -> str:
    return format(value, "f")


def day(value: int) -> str:
    return f'"{(date(1970, 1, 1) + timedelta(days=value)).isoformat()}"'


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": of, **more}


def stamp(unit: str, zone: str | None, avro: str | None, *, spark: bool) -> Kind:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return Kind(
        arrow=pa.timestamp(unit, zone),
        avro=avro and logical("long", avro),
        draw=ticks(per_second),
        json=instant(per_second),
        spark=spark,
    )


def leaf(
    arrow: pa.DataType, avro: Any, draw: Callable[[random.Random], Any], text: Callable[[Any], str], **more: Any
) -> Kind:
    return Kind(arrow=arrow, avro=avro, draw=draw, json=text, **more)


TEXT = leaf(pa.string(), "string", lambda draw: draw.choice(TEXTS), quoted)
ENUM = {"type": "enum", "name": "", "symbols": ["RED", "BLUE"]}
LEAVES: Sequence[Kind] = (
    TEXT,
    leaf(pa.bool_(), "boolean", lambda draw: draw.random() < 0.5, lambda value: "true" if value else "false"),
    leaf(pa.int8(), None, whole(8), str),
    leaf(pa.int16(), None, whole(16), str),
    leaf(pa.int32(), "int", whole(32), str),
    leaf(pa.int64(), "long", whole(64), str),
    leaf(pa.uint8(), None, whole(8, signed=False), str),
    leaf(pa.uint32(), None, whole(32, signed=False), str),
    leaf(pa.uint64(), None, whole(64, signed=False), str),
    leaf(pa.float16(), None, digits(np.float16), shortest(np.float16), spark=False),
    leaf(pa.float32(), "float", digits(np.float32), shortest(np.float32)),
    leaf(pa.float64(), "double", digits(np.float64), floats),
    leaf(pa.decimal128(9, 2), logical("bytes", "decimal", precision=9, scale=2), decimals(9, 2), plain),
    leaf(pa.decimal128(38, 20), logical("bytes", "decimal", precision=38, scale=20), decimals(38, 20), plain),
    leaf(
        pa.decimal128(18, 3),
        logical("fixed", "decimal", name="", size=8, precision=18, scale=3),
        decimals(18, 3),
        plain,
    ),
    leaf(pa.decimal256(60, 5), None, decimals(60, 5), plain, spark=False),
    leaf(pa.binary(), "bytes", lambda draw: draw.choice([b"", b"12", b"\xff\0", draw.randbytes(3)]), encoded),
    leaf(pa.binary(3), {"type": "fixed", "name": "", "size": 3}, lambda draw: draw.randbytes(3), encoded),
    leaf(pa.string(), ENUM, lambda draw: draw.choice(["RED", "BLUE"]), quoted),
    leaf(
        pa.uuid(),
        logical("fixed", "uuid", name="", size=16),
        lambda draw: draw.randbytes(16),
        lambda value: quoted(str(uuid.UUID(bytes=value))),
        spark=False,
    ),
    leaf(pa.date32(), logical("int", "date"), lambda draw: draw.choice([FIRST_DAY, LAST_DAY, -1, 0, 15_736]), day),
    leaf(pa.time32("ms"), logical("int", "time-millis"), times(10**3), clock(10**3), spark=False),
    leaf(pa.time64("us"), logical("long", "time-micros"), times(10**6), clock(10**6), spark=False),
    leaf(pa.time64("ns"), None, times(10**9), clock(10**9), spark=False),
    stamp("s", None, None, spark=True),
    stamp("ms", "UTC", "timestamp-millis", spark=True),
    stamp("us", "UTC", "timestamp-micros", spark=True),
    stamp("ns", "UTC", "timestamp-nanos", spark=False),
    stamp("ms", None, "local-timestamp-millis", spark=True),
    stamp("us", None, "local-timestamp-micros", spark=True),
    stamp("ns", None, "local-timestamp-nanos", spark=False),
    stamp("us", "America/New_York", None, spark=True),
)
