"""Rows of TPC-H's schema from a seed, small words and all: enough for each of its queries to have an answer.

Money is BIG_DECIMAL, dates are TIMESTAMP. Not the benchmark's own generator, whose words are its own: what counts here
is that queries of that shape are answered as DuckDB answers them over the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tests.sql.slt_data import Dataset

from merlot.spec.schema import TableSchema

DAY_MS: Final = 86_400_000
_FIRST_DAY: Final = 8_036
"""1992-01-01."""
_REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS: Final = (
    "BRAZIL",
    "CANADA",
    "CHINA",
    "FRANCE",
    "GERMANY",
    "INDIA",
    "KENYA",
    "PERU",
    "ROMANIA",
    "SAUDI ARABIA",
)
_REGION_OF: Final = (1, 1, 2, 3, 3, 2, 0, 1, 3, 4)
_SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES: Final = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
_INSTRUCTIONS: Final = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
_TYPES: Final = ("ECONOMY ANODIZED STEEL", "MEDIUM POLISHED TIN", "PROMO BURNISHED BRASS", "STANDARD PLATED COPPER")
_CONTAINERS: Final = ("LG BOX", "MED BAG", "MED BOX", "SM CASE", "SM PACK")
_COLORS: Final = ("almond", "forest", "green", "navy", "red")
_WORDS: Final = ("furiously", "special", "packages", "requests", "Customer", "quiet", "Complaints", "carefully")


def tpch(scale: float, seed: int = 7) -> list[Dataset]:
    """The eight tables; a scale of 1 is six million lines."""
    return _Generator(scale, seed).tables()


class _Generator:
    def __init__(self, scale: float, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._parts = max(40, int(200_000 * scale))
        self._suppliers = max(20, int(10_000 * scale))
        self._customers = max(60, int(150_000 * scale))
        self._orders = max(300, int(1_500_000 * scale))

    def tables(self) -> list[Dataset]:
        lines_of = self._random.integers(1, 8, self._orders)
        order_days = _FIRST_DAY + self._random.integers(0, 2_400, self._orders)
        return [
            _table("region", r_regionkey=("INT", np.arange(5)), r_name=("STRING", _REGIONS)),
            _table(
                "nation",
                n_nationkey=("INT", np.arange(len(_NATIONS))),
                n_name=("STRING", _NATIONS),
                n_regionkey=("INT", np.array(_REGION_OF)),
            ),
            self._supplier(),
            self._part(),
            self._partsupp(),
            self._customer(),
            self._order(order_days),
            self._lineitem(order_days, lines_of),
        ]

    def _supplier(self) -> Dataset:
        keys = np.arange(1, self._suppliers + 1)
        return _table(
            "supplier",
            s_suppkey=("INT", keys),
            s_name=("STRING", [f"Supplier#{key:09}" for key in keys]),
            s_address=("STRING", [f"street {key}" for key in keys]),
            s_nationkey=("INT", keys % len(_NATIONS)),
            s_phone=("STRING", self._phones(len(keys))),
            s_acctbal=("BIG_DECIMAL", self._money(-99_999, 999_999, len(keys))),
            s_comment=("STRING", self._sentences(len(keys))),
        )

    def _part(self) -> Dataset:
        keys = np.arange(1, self._parts + 1)
        return _table(
            "part",
            p_partkey=("INT", keys),
            p_name=(
                "STRING",
                [f"{one} {two}" for one, two in zip(*(self._words(_COLORS, len(keys)) for _ in "12"), strict=True)],
            ),
            p_mfgr=("STRING", [f"Manufacturer#{key % 5 + 1}" for key in keys]),
            p_brand=("STRING", [f"Brand#{number}" for number in self._random.choice((12, 23, 34, 45), len(keys))]),
            p_type=("STRING", self._words(_TYPES, len(keys))),
            p_size=("INT", self._random.integers(1, 51, len(keys))),
            p_container=("STRING", self._words(_CONTAINERS, len(keys))),
            p_retailprice=("BIG_DECIMAL", self._money(90_000, 200_000, len(keys))),
        )

    def _partsupp(self) -> Dataset:
        parts = np.repeat(np.arange(1, self._parts + 1), 4)
        suppliers = (parts + np.tile(np.arange(4), self._parts) * (self._suppliers // 4)) % self._suppliers + 1
        return _table(
            "partsupp",
            ps_partkey=("INT", parts),
            ps_suppkey=("INT", suppliers),
            ps_availqty=("INT", self._random.integers(1, 10_000, len(parts))),
            ps_supplycost=("BIG_DECIMAL", self._money(100, 100_000, len(parts))),
        )

    def _customer(self) -> Dataset:
        keys = np.arange(1, self._customers + 1)
        return _table(
            "customer",
            c_custkey=("INT", keys),
            c_name=("STRING", [f"Customer#{key:09}" for key in keys]),
            c_address=("STRING", [f"road {key}" for key in keys]),
            c_nationkey=("INT", self._random.integers(0, len(_NATIONS), len(keys))),
            c_phone=("STRING", self._phones(len(keys))),
            c_acctbal=("BIG_DECIMAL", self._money(-99_999, 999_999, len(keys))),
            c_mktsegment=("STRING", self._words(_SEGMENTS, len(keys))),
            c_comment=("STRING", self._sentences(len(keys))),
        )

    def _order(self, days: NDArray[Any]) -> Dataset:
        keys = np.arange(1, self._orders + 1)
        return _table(
            "orders",
            o_orderkey=("INT", keys),
            # A third of the customers never order.
            o_custkey=("INT", self._random.integers(1, self._customers * 2 // 3 + 1, len(keys))),
            o_orderstatus=("STRING", self._words(("F", "O", "P"), len(keys))),
            o_totalprice=("BIG_DECIMAL", self._money(100_000, 50_000_000, len(keys))),
            o_orderdate=("TIMESTAMP", days * DAY_MS),
            o_orderpriority=("STRING", self._words(_PRIORITIES, len(keys))),
            o_shippriority=("INT", np.zeros(len(keys), np.int64)),
            o_comment=("STRING", self._sentences(len(keys))),
        )

    def _lineitem(self, order_days: NDArray[Any], lines_of: NDArray[Any]) -> Dataset:
        orders = np.repeat(np.arange(1, self._orders + 1), lines_of)
        number = len(orders)
        parts = self._random.integers(1, self._parts + 1, number)
        suppliers = (parts + self._random.integers(0, 4, number) * (self._suppliers // 4)) % self._suppliers + 1
        shipped = np.repeat(order_days, lines_of) + self._random.integers(1, 122, number)
        committed = np.repeat(order_days, lines_of) + self._random.integers(30, 91, number)
        quantity = self._random.integers(1, 51, number)
        return _table(
            "lineitem",
            l_orderkey=("INT", orders),
            l_partkey=("INT", parts),
            l_suppkey=("INT", suppliers),
            l_linenumber=("INT", np.arange(number) - np.repeat(np.cumsum(lines_of) - lines_of, lines_of) + 1),
            l_quantity=("BIG_DECIMAL", [str(one) for one in quantity]),
            l_extendedprice=("BIG_DECIMAL", self._money(90_000, 10_000_000, number)),
            l_discount=("BIG_DECIMAL", [f"0.{one:02}" for one in self._random.integers(0, 11, number)]),
            l_tax=("BIG_DECIMAL", [f"0.{one:02}" for one in self._random.integers(0, 9, number)]),
            l_returnflag=("STRING", self._words(("A", "N", "R"), number)),
            l_linestatus=("STRING", self._words(("F", "O"), number)),
            l_shipdate=("TIMESTAMP", shipped * DAY_MS),
            l_commitdate=("TIMESTAMP", committed * DAY_MS),
            l_receiptdate=("TIMESTAMP", (shipped + self._random.integers(1, 31, number)) * DAY_MS),
            l_shipinstruct=("STRING", self._words(_INSTRUCTIONS, number)),
            l_shipmode=("STRING", self._words(_MODES, number)),
        )

    def _words(self, words: Sequence[str], number: int) -> list[str]:
        return [str(word) for word in self._random.choice(words, number)]

    def _sentences(self, number: int) -> list[str]:
        return [" ".join(row) for row in self._random.choice(_WORDS, (number, 4)).tolist()]

    def _phones(self, number: int) -> list[str]:
        return [f"{country}-555-{at:04}" for at, country in enumerate(self._random.integers(10, 35, number))]

    def _money(self, low: int, high: int, number: int) -> list[str]:
        cents = self._random.integers(low, high, number).tolist()
        return [f"{'-' if one < 0 else ''}{abs(one) // 100}.{abs(one) % 100:02}" for one in cents]


def _table(name: str, **columns: tuple[str, Any]) -> Dataset:
    fields = [{"name": column, "type": type_} for column, (type_, _) in columns.items()]
    arrays = {column: _array(type_, values) for column, (type_, values) in columns.items()}
    schema = TableSchema.model_validate({"fields": fields})
    return Dataset(name=name, schema=schema, rows=pa.table(arrays), decimal_places=2)


def _array(type_: str, values: Any) -> pa.Array:
    if type_ == "TIMESTAMP":
        return pa.array(values, pa.int64()).cast(pa.timestamp("ms"))
    return pa.array(values, pa.int32() if type_ == "INT" else pa.string())
