"""Rows of the Star Schema Benchmark, joined into one flat table, and its thirteen queries over it.

O'Neil, O'Neil, Chen: The Star Schema Benchmark. Distributions are the paper's (uniform); rows come in order of the
order key, so that dates are unsorted, as dbgen writes them. Deterministic.
"""

from __future__ import annotations

import calendar
import datetime as dt

import numpy as np
import pyarrow as pa

ROWS = 6_000_000
CUSTOMERS = 180_000
PARTS = 200_000
SUPPLIERS = 2_000

NATIONS = {
    "AFRICA": ("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
    "AMERICA": ("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
    "ASIA": ("CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"),
    "EUROPE": ("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
    "MIDDLE EAST": ("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
}
FIRST_DAY = dt.date(1992, 1, 1)
NUM_DAYS = 2405
"""Orders end on 1998-08-02."""

QUERIES = {
    "Q1.1": "SELECT SUM(lo_extendedprice * lo_discount) FROM ssb WHERE d_year = 1993 AND lo_discount BETWEEN 1 AND 3 "
    "AND lo_quantity < 25",
    "Q1.2": "SELECT SUM(lo_extendedprice * lo_discount) FROM ssb WHERE d_yearmonthnum = 199401 "
    "AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35",
    "Q1.3": "SELECT SUM(lo_extendedprice * lo_discount) FROM ssb WHERE d_weeknuminyear = 6 AND d_year = 1994 "
    "AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
    "Q2.1": "SELECT SUM(lo_revenue), d_year, p_brand1 FROM ssb WHERE p_category = 'MFGR#12' AND s_region = 'AMERICA' "
    "GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1 LIMIT 100000",
    "Q2.2": "SELECT SUM(lo_revenue), d_year, p_brand1 FROM ssb WHERE p_brand1 BETWEEN 'MFGR#2221' AND 'MFGR#2228' "
    "AND s_region = 'ASIA' GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1 LIMIT 100000",
    "Q2.3": "SELECT SUM(lo_revenue), d_year, p_brand1 FROM ssb WHERE p_brand1 = 'MFGR#2239' AND s_region = 'EUROPE' "
    "GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1 LIMIT 100000",
    "Q3.1": "SELECT c_nation, s_nation, d_year, SUM(lo_revenue) FROM ssb WHERE c_region = 'ASIA' AND s_region = 'ASIA' "
    "AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_nation, s_nation, d_year "
    "ORDER BY d_year, SUM(lo_revenue) DESC LIMIT 100000",
    "Q3.2": "SELECT c_city, s_city, d_year, SUM(lo_revenue) FROM ssb WHERE c_nation = 'UNITED STATES' "
    "AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, SUM(lo_revenue) DESC LIMIT 100000",
    "Q3.3": "SELECT c_city, s_city, d_year, SUM(lo_revenue) FROM ssb WHERE c_city IN ('UNITED KI1', 'UNITED KI5') "
    "AND s_city IN ('UNITED KI1', 'UNITED KI5') AND d_year >= 1992 AND d_year <= 1997 GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, SUM(lo_revenue) DESC LIMIT 100000",
    "Q3.4": "SELECT c_city, s_city, d_year, SUM(lo_revenue) FROM ssb WHERE c_city IN ('UNITED KI1', 'UNITED KI5') "
    "AND s_city IN ('UNITED KI1', 'UNITED KI5') AND d_yearmonth = 'Dec1997' GROUP BY c_city, s_city, d_year "
    "ORDER BY d_year, SUM(lo_revenue) DESC LIMIT 100000",
    "Q4.1": "SELECT d_year, c_nation, SUM(lo_revenue - lo_supplycost) FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', 'MFGR#2') GROUP BY d_year, c_nation "
    "ORDER BY d_year, c_nation LIMIT 100000",
    "Q4.2": "SELECT d_year, s_nation, p_category, SUM(lo_revenue - lo_supplycost) FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_region = 'AMERICA' AND d_year IN (1997, 1998) AND p_mfgr IN ('MFGR#1', 'MFGR#2') "
    "GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category LIMIT 100000",
    "Q4.3": "SELECT d_year, s_city, p_brand1, SUM(lo_revenue - lo_supplycost) FROM ssb WHERE c_region = 'AMERICA' "
    "AND s_nation = 'UNITED STATES' AND d_year IN (1997, 1998) AND p_category = 'MFGR#14' "
    "GROUP BY d_year, s_city, p_brand1 ORDER BY d_year, s_city, p_brand1 LIMIT 100000",
}

MORE_QUERIES = {
    "sum of all": "SELECT SUM(lo_revenue) FROM ssb",
    "distinct customers": "SELECT COUNT(DISTINCT lo_custkey) FROM ssb",
    "top 10 brands": "SELECT p_brand1, SUM(lo_revenue) FROM ssb GROUP BY p_brand1 ORDER BY SUM(lo_revenue) DESC, "
    "p_brand1 LIMIT 10",
    "group by 180k customers": "SELECT lo_custkey, SUM(lo_revenue) FROM ssb GROUP BY lo_custkey "
    "ORDER BY SUM(lo_revenue) DESC, lo_custkey LIMIT 10",
}


def generate(rows: int = ROWS, *, seed: int = 1) -> pa.Table:
    """`rows` rows of the flat table; INT columns are int32, strings are plain utf8."""
    random = np.random.default_rng(seed)
    orders = np.repeat(np.arange(rows // 4 + 1, dtype=np.int64), 4)[:rows]
    order_day = random.integers(0, NUM_DAYS, rows // 4 + 1)
    order_customer = random.integers(0, CUSTOMERS, rows // 4 + 1)
    day, customer = order_day[orders], order_customer[orders]
    part, supplier = random.integers(0, PARTS, rows), random.integers(0, SUPPLIERS, rows)
    quantity, discount = random.integers(1, 51, rows), random.integers(0, 11, rows)
    price = quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1000)) // 100
    revenue = price * (100 - discount) // 100
    supply_cost = 6 * (90_000 + part // 10 % 20_001 + 100 * (part % 1000)) // 1000
    columns: dict[str, pa.Array] = {
        "lo_orderkey": pa.array(orders),
        "lo_linenumber": _int(np.arange(rows) % 4 + 1),
        "lo_custkey": _int(customer + 1),
        "lo_partkey": _int(part + 1),
        "lo_suppkey": _int(supplier + 1),
        "lo_orderpriority": _names(["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECI", "5-LOW"], random, rows),
        "lo_shipmode": _names(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"], random, rows),
        "lo_quantity": _int(quantity),
        "lo_discount": _int(discount),
        "lo_extendedprice": _int(price),
        "lo_revenue": _int(revenue),
        "lo_supplycost": _int(supply_cost),
        "lo_tax": _int(random.integers(0, 9, rows)),
        **_dates(day),
        **_places("c", customer),
        **_places("s", supplier),
        **_parts(part),
    }
    return pa.table(columns)


def sort_by_date(table: pa.Table) -> pa.Table:
    """The same rows by order date; rows of a day stay in their order."""
    order = np.argsort(table["lo_orderdate"].to_numpy(), kind="stable")
    return table.take(pa.array(order)).combine_chunks()


def _int(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _take(names: list[str], ids: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(ids.astype(np.int32)), pa.array(names)).dictionary_decode()


def _names(names: list[str], random: np.random.Generator, rows: int) -> pa.Array:
    return _take(names, random.integers(0, len(names), rows))


def _dates(day: np.ndarray) -> dict[str, pa.Array]:
    days = [FIRST_DAY + dt.timedelta(number) for number in range(NUM_DAYS)]

    def of(values: list[int]) -> pa.Array:
        return _int(np.array(values)[day])

    months = [f"{calendar.month_abbr[date.month]}{date.year}" for date in days]
    return {
        "lo_orderdate": of([date.year * 10_000 + date.month * 100 + date.day for date in days]),
        "d_year": of([date.year for date in days]),
        "d_yearmonthnum": of([date.year * 100 + date.month for date in days]),
        "d_yearmonth": _take(months, day),
        "d_weeknuminyear": of([(date.timetuple().tm_yday - 1) // 7 + 1 for date in days]),
    }


def _places(prefix: str, key: np.ndarray) -> dict[str, pa.Array]:
    """A key's city (10 a nation), nation and region, spread by a multiplicative hash."""
    nations = [(region, nation) for region, members in NATIONS.items() for nation in members]
    city = key * 2_654_435_761 % 4_294_967_296 * 250 // 4_294_967_296
    return {
        f"{prefix}_city": _take([f"{nation[:9]:9}{digit}" for _, nation in nations for digit in range(10)], city),
        f"{prefix}_nation": _take([nation for _, nation in nations for _ in range(10)], city),
        f"{prefix}_region": _take([region for region, _ in nations for _ in range(10)], city),
    }


def _parts(part: np.ndarray) -> dict[str, pa.Array]:
    """A part's brand (40 a category), category (5 a manufacturer) and manufacturer."""
    categories = [f"MFGR#{maker}{number}" for maker in range(1, 6) for number in range(1, 6)]
    brand = part * 2_654_435_761 % 4_294_967_296 * 1000 // 4_294_967_296
    return {
        "p_mfgr": _take([category[:6] for category in categories for _ in range(40)], brand),
        "p_category": _take([category for category in categories for _ in range(40)], brand),
        "p_brand1": _take([f"{category}{number}" for category in categories for number in range(1, 41)], brand),
    }
