"""Single-table queries over TPC-H's lineitem and orders beside DuckDB: metrics as DOUBLE and as BIG_DECIMAL.

Rows are those of PyPI's tpchgen-cli. Lineitem is cut into segments by the day or the month of shipping, orders by the
month; DuckDB has DECIMAL(15, 2) where Merlot has BIG_DECIMAL. Literals vary with `--seed`, which is random unless given
and always printed. Answers are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.bench import report, ssb
from tests.bench.report import Case

from merlot.query.context import ExecutionContext
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.schema import TableSchema

REPEATS = 5
DAY_FORMAT, MONTH_FORMAT = "%Y%m%d", "%Y%m"
DATES = {"lineitem": "l_shipdate", "orders": "o_orderdate"}
TYPES = ("DOUBLE", "BIG_DECIMAL")


def generated(scale: float) -> Path:
    """The folder with lineitem.parquet and orders.parquet, made once."""
    folder = ssb.CACHE / f"tpch-{scale:g}"
    if not (folder / "orders.parquet").exists():
        tool = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        command = [os.environ.get("TPCHGEN", str(tool)), "parquet", "-s", f"{scale:g}"]
        command += ["--tables=lineitem,orders", f"--output-dir={folder}"]
        subprocess.run(command, check=True)
    return folder


def rows_of(folder: Path, name: str, type_: str) -> pa.Table:
    """A table as Merlot takes it: dates as timestamps, decimals as doubles or as plain texts."""
    table = pq.read_table(folder / f"{name}.parquet")
    columns = [_as_stored(column, type_) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _as_stored(column: pa.ChunkedArray, type_: str) -> pa.ChunkedArray:
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("ms"))
    if pa.types.is_decimal(column.type) and type_ == "DOUBLE":
        return column.cast(pa.float64())
    if pa.types.is_decimal(column.type):
        return pc.utf8_rtrim(pc.utf8_rtrim(column.cast(pa.string()), "0"), ".")
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def schema_of(folder: Path, name: str, type_: str) -> TableSchema:
    """Numbers of two digits after the point are metrics of the type."""
    fields = []
    for field in pq.read_schema(folder / f"{name}.parquet"):
        is_metric = pa.types.is_decimal(field.type)
        fields.append(
            {
                "name": field.name,
                "type": type_ if is_metric else _name_of(field.type),
                "role": "metric" if is_metric else "dimension",
            }
        )
    return TableSchema.model_validate({"fields": fields})


def _name_of(type_: pa.DataType) -> str:
    if pa.types.is_date(type_):
        return "TIMESTAMP"
    return {pa.int32(): "INT", pa.int64(): "LONG"}.get(type_, "STRING")


def parts(rows: pa.Table, date: str, pattern: str) -> Iterator[pa.Table]:
    """Rows by period, in order of time."""
    period = pc.strftime(rows[date], pattern).dictionary_encode().combine_chunks()
    order = pc.sort_indices(rows[date])
    rows, ids = rows.take(order), period.indices.take(order).to_numpy()
    edges = np.flatnonzero(np.diff(ids)) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
        yield rows.slice(start, stop - start).combine_chunks()


def segments(folder: Path, name: str, type_: str, pattern: str) -> list[ImmutableSegment]:
    """Opened segments, built unless the same builder made them before."""
    label = {DAY_FORMAT: "daily", MONTH_FORMAT: "monthly"}[pattern]
    kept = ssb.paths_of(f"{folder.name}-{name}-{type_}-{label}", 0, 1)[0].parent
    if not (kept / "done").exists():
        print(f"building {kept.name} …", file=sys.stderr)
        kept.mkdir(parents=True, exist_ok=True)
        schema, date = schema_of(folder, name, type_), DATES[name]
        for number, rows in enumerate(parts(rows_of(folder, name, type_), date, pattern)):
            request = BuildRequest(name=f"{name}_{number:05}", table=name, schema=schema, time_column=date)
            build_segment(request, rows, kept)
        (kept / "done").touch()
    return [ImmutableSegment.open(path) for path in sorted(kept.glob("*.mseg"))]


def queries(seed: int) -> dict[str, str]:
    """Of both tables, in both dialects; the literals are TPC-H's substitution parameters, chosen by the seed."""
    chosen = random.Random(seed)
    year, discount = chosen.randint(1993, 1997), chosen.randint(2, 9)
    revenue = "SUM(l_extendedprice * (1 - l_discount))"
    modes = chosen.sample(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"], 2)
    day, quarter = f"1998-{chosen.randint(8, 10):02}-{chosen.randint(1, 28):02}", chosen.choice(("01", "04", "07"))
    key = chosen.randint(1, 100) * 32 + 1
    return {
        "Q1": "SELECT l_returnflag, l_linestatus, SUM(l_quantity), SUM(l_extendedprice), "
        f"{revenue}, SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)), AVG(l_quantity), AVG(l_extendedprice), "
        f"AVG(l_discount), COUNT(*) FROM lineitem WHERE l_shipdate <= TIMESTAMP '{day} 00:00:00' "
        "GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus LIMIT 10",
        "Q6": f"SELECT SUM(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= TIMESTAMP '{year}-01-01 "
        f"00:00:00' AND l_shipdate < TIMESTAMP '{year + 1}-01-01 00:00:00' "
        f"AND l_discount BETWEEN 0.0{discount - 1} AND 0.{discount + 1:02} AND l_quantity < {chosen.randint(24, 25)}",
        "Q12's lines": f"SELECT l_shipmode, COUNT(*) FROM lineitem WHERE l_shipmode IN ('{modes[0]}', '{modes[1]}') "
        "AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate "
        f"AND l_receiptdate >= TIMESTAMP '{year}-01-01 00:00:00' "
        f"AND l_receiptdate < TIMESTAMP '{year + 1}-01-01 00:00:00' "
        "GROUP BY l_shipmode ORDER BY l_shipmode LIMIT 10",
        "Q15's revenue": f"SELECT l_suppkey, {revenue} AS r FROM lineitem WHERE l_shipdate >= TIMESTAMP "
        f"'{year}-{quarter}-01 00:00:00' AND l_shipdate < TIMESTAMP '{year}-{int(quarter) + 3:02}-01 00:00:00' "
        "GROUP BY l_suppkey ORDER BY r DESC, l_suppkey LIMIT 1",
        "Q18's orders": "SELECT l_orderkey, SUM(l_quantity) AS q FROM lineitem GROUP BY l_orderkey "
        f"HAVING SUM(l_quantity) > {chosen.randint(300, 315)} ORDER BY q DESC, l_orderkey LIMIT 100",
        "top 10 orders by revenue": f"SELECT l_orderkey, {revenue} AS r FROM lineitem GROUP BY l_orderkey "
        "ORDER BY r DESC, l_orderkey LIMIT 10",
        "comments like": "SELECT COUNT(*) FROM lineitem WHERE l_comment LIKE '%special%requests%'",
        "by mode and month": "SELECT l_shipmode, {month} AS m, SUM(l_extendedprice) FROM lineitem "
        "GROUP BY l_shipmode, m ORDER BY m, l_shipmode LIMIT 1000",
        "one order": f"SELECT l_linenumber, l_quantity FROM lineitem WHERE l_orderkey = {key} "
        "ORDER BY l_linenumber LIMIT 10",
        "Q4's orders": "SELECT o_orderpriority, COUNT(*) FROM orders WHERE o_orderdate >= TIMESTAMP "
        f"'{year}-{quarter}-01 00:00:00' AND o_orderdate < TIMESTAMP '{year}-{int(quarter) + 3:02}-01 00:00:00' "
        "GROUP BY o_orderpriority ORDER BY o_orderpriority LIMIT 10",
        "Q13's customers": "SELECT o_custkey, COUNT(*) AS c FROM orders WHERE o_comment NOT LIKE "
        "'%special%requests%' GROUP BY o_custkey ORDER BY c DESC, o_custkey LIMIT 10",
        "orders by price": "SELECT o_orderpriority, SUM(o_totalprice), AVG(o_totalprice) FROM orders "
        "GROUP BY o_orderpriority ORDER BY o_orderpriority LIMIT 10",
    }


_MONTH = ("{month}", "YEAR(l_shipdate) * 100 + MONTH(l_shipdate)")


def _table(sql: str) -> str:
    return "lineitem" if " FROM lineitem" in sql else "orders"


def compare(folder: Path, type_: str, pattern: str, seed: int, repeats: int, only: list[str]) -> list[Case]:
    """Cases of one layout; raises SystemExit where an answer differs."""
    label = f"{type_} {'daily' if pattern == DAY_FORMAT else 'monthly'} "
    theirs, cases = duckdb.connect(config={"threads": ssb.THREADS}), []
    for name in DATES:
        number = "DOUBLE" if type_ == "DOUBLE" else "DECIMAL(15, 2)"
        metrics = [f.name for f in pq.read_schema(folder / f"{name}.parquet") if pa.types.is_decimal(f.type)]
        casts = ", ".join(f"{metric}::{number} AS {metric}" for metric in metrics)
        source = f"'{folder / name}.parquet'"
        theirs.execute(f"CREATE TABLE {name} AS SELECT * REPLACE ({casts}) FROM {source}")
    with ThreadPoolExecutor(ssb.THREADS) as pool:
        engines = {}
        for name in DATES:
            schema = schema_of(folder, name, type_)
            context = ExecutionContext(schema=schema, pool=pool, threads=ssb.THREADS)
            found = segments(folder, name, type_, pattern if name == "lineitem" else MONTH_FORMAT)
            engines[name] = ssb.Engine(schema, found, context)
        for case, text in queries(seed).items():
            sql = text.replace(*_MONTH)
            ours = engines[_table(sql)]
            if only and case not in only:
                continue
            mine = [[_number(value) for value in row] for row in ours.query(sql)]
            if not ssb.same(mine, theirs.execute(sql).fetchall()):
                raise SystemExit(f"{label}{case}: answers differ from DuckDB's: {sql}")
            first = report.median_ms(lambda sql=sql, ours=ours: ours.query(sql), repeats)  # type: ignore[misc]
            other = report.median_ms(lambda sql=sql: theirs.execute(sql).fetchall(), repeats)  # type: ignore[misc]
            cases.append(Case(label + case, "ms", first, "duckdb", other))
    theirs.close()
    return [*cases, Case(f"{label}geometric mean", "ratio", report.geometric_mean(cases), "duckdb", 1.0)]


def _number(value: object) -> object:
    """BIG_DECIMAL comes as text."""
    return float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H's scale factor: 1 (default) is 6 M lines")
    parser.add_argument("--seed", type=int, default=None, help="of the literals; another one each time unless given")
    parser.add_argument("--types", nargs="*", default=TYPES, choices=TYPES)
    parser.add_argument("--segments", nargs="*", default=("monthly", "daily"), choices=("monthly", "daily"))
    parser.add_argument("--only", nargs="*", default=[], help="names of queries")
    parser.add_argument("--quick", action="store_true", help="scale 0.05, 3 repeats")
    arguments = parser.parse_args()
    scale, repeats = (0.05, 3) if arguments.quick else (arguments.scale, REPEATS)
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
    folder, cases = generated(scale), []
    for layout in arguments.segments:
        for type_ in arguments.types:
            pattern = DAY_FORMAT if layout == "daily" else MONTH_FORMAT
            cases += compare(folder, type_, pattern, seed, repeats, arguments.only)
    title = f"TPC-H, scale {scale:g}, {ssb.THREADS} threads, seed {seed}, load {os.getloadavg()[0]:.2f}, ms"
    report.publish("tpch", title, cases)


if __name__ == "__main__":
    main()
