"""ClickBench's 43 queries beside DuckDB, and chDB where it is installed: rows in memory or mapped, 2 threads each.

Rows are generated (`clickbench_data`), literals vary with `--seed`, which is random unless given and always printed.
Answers are compared before anything is timed. First runs are those of a fresh process each, segments just opened, query
kernels loaded as a server loads them at its start; columns are joined in memory beside the queries once the second run
has asked for that, as on a server. A first run that takes more than three times a later one says where it went: bytes
decoded, and how long joining took.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc
from tests.bench import clickbench_chdb, clickbench_data, report, ssb
from tests.bench.clickbench_queries import Query, queries
from tests.bench.report import Case

from merlot.kernels.warm import load_for_queries
from merlot.query.context import ExecutionContext
from merlot.query.shortcuts.coalesced_segments import BATCH_CACHE
from merlot.segment.buffers import DECODE_CACHE
from merlot.segment.immutable import ImmutableSegment

DATA_SEED = 17
REPEATS = 5
LATER = 5
SLOW = 3.0
"""A first run that takes as many later ones says why."""


def literals(table: pa.Table, seed: int) -> dict[str, Query]:
    """The queries of a seed, about values that there are."""
    chosen = random.Random(seed)
    counters = pc.value_counts(table["CounterID"]).to_pylist()
    often = sorted(counters, key=lambda one: -one["counts"])[:6]
    counter = chosen.choice(often)["values"]
    mine = table.filter(pc.equal(table["CounterID"], counter))
    hashes = tuple(mine[name][chosen.randrange(mine.num_rows)].as_py() for name in ("RefererHash", "URLHash"))
    user = table["UserID"][chosen.randrange(table.num_rows)].as_py()
    return queries(seed, counter, (hashes[0], hashes[1]), user)


def differ(query: Query, ours: list[list[object]], theirs: list[tuple[object, ...]]) -> bool:
    """Whether answers differ in what is decided of them."""
    if query.compared is None:
        return not ssb.same(ours, [tuple(map(_plain, row)) for row in theirs])
    mine = [[row[place] for place in query.compared] for row in ours]
    others = [tuple(_plain(row[place]) for place in query.compared) for row in theirs]
    return not ssb.same(mine, others)


def _plain(value: object) -> object:
    """Times, all of whole seconds, as Merlot writes them."""
    return value.strftime("%Y-%m-%d %H:%M:%S.0") if isinstance(value, dt.datetime) else value


@dataclass(frozen=True)
class Runs:
    """One query in a fresh process: ms, and what memory held more after a run than before it."""

    first: float
    second: float
    later: float
    """The best of some later ones."""
    decoded: int
    """Bytes, by the first run."""
    joined: int
    """Bytes, from the second on, which asks for the joining of columns of segments that are asked again."""
    joining: float
    """ms from the end of the second until that was done."""

    def where(self) -> str:
        """Where the first two went, if they took more than three times a later one."""
        if max(self.first, self.second) <= SLOW * self.later:
            return ""
        decoded, joined = self.decoded / 1e6, self.joined / 1e6
        return (
            f"first {self.first:.1f} ms: {decoded:.1f} MB decoded; second {self.second:.1f} ms; "
            f"{joined:.1f} MB joined in {self.joining:.1f} ms more"
        )


def first_runs(chosen: dict[str, Query], rows: int) -> dict[str, Runs]:
    """Of each query, its first runs in a fresh process."""
    found = {}
    for name, query in chosen.items():
        command = [sys.executable, "-m", "tests.bench.clickbench", "--rows", str(rows), "--first-run", query.sql]
        answer = subprocess.run(command, cwd=report.ROOT, check=True, capture_output=True, text=True)
        found[name] = Runs(**json.loads(answer.stdout.splitlines()[-1]))
    return found


def measure_first(sql: str, rows: int) -> None:
    """Print the `Runs` of one query in this process."""
    load_for_queries()
    schema = ssb.schema_of(ssb.kept_schema(f"clickbench-{rows}").empty_table())
    segments = [ImmutableSegment.open(path) for path in ssb.paths_of("clickbench", rows, ssb.SEGMENTS)]
    with ThreadPoolExecutor(ssb.THREADS) as pool, ThreadPoolExecutor(1) as joiner:
        context = ExecutionContext(schema=schema, pool=pool, threads=ssb.THREADS, coalesce_later=joiner.submit)
        engine = ssb.Engine(schema, segments, context)
        first = _timed_ms(lambda: engine.query(sql))
        decoded = DECODE_CACHE.stats()["bytes"]
        second = _timed_ms(lambda: engine.query(sql))
        joining = _timed_ms(lambda: joiner.submit(lambda: None).result())
        joined = BATCH_CACHE.stats()["bytes"]
        later = min(_timed_ms(lambda: engine.query(sql)) for _ in range(LATER))
    print(json.dumps(asdict(Runs(first, second, later, decoded, joined, joining))))


def _timed_ms(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def compare(chosen: dict[str, Query], table: pa.Table, repeats: int) -> list[Case]:
    """A case per query; raises SystemExit where an answer differs."""
    cases = []
    with ThreadPoolExecutor(ssb.THREADS) as pool:
        ours = ssb.engine("clickbench", table, pool)
        theirs = ssb.duckdb_over(table, "hits")
        for name, query in chosen.items():
            if differ(query, ours.query(query.sql), theirs.execute(query.duckdb).fetchall()):
                raise SystemExit(f"{name}: answers differ from DuckDB's: {query.sql}")
            mine = report.median_ms(lambda sql=query.sql: ours.query(sql), repeats)  # type: ignore[misc]
            other = report.median_ms(lambda sql=query.duckdb: theirs.execute(sql).fetchall(), repeats)  # type: ignore[misc]
            cases.append(Case(name, "ms", mine, "duckdb", other))
        theirs.close()
    return cases


def beside_chdb(chosen: dict[str, Query], cases: Sequence[Case], rows: int, repeats: int) -> list[Case]:
    """Our times of these cases beside chDB's, and how many queries are ahead of both peers; none where it is absent."""
    peer = clickbench_chdb.opened(ssb.CACHE / f"clickbench-{rows}.parquet", ssb.THREADS)
    if peer is None:
        return []
    theirs = {name: peer.median_ms(query, repeats) for name, query in chosen.items()}
    peer.close()
    found = [Case(f"{case.case} beside chDB", "ms", case.ours, "chdb", theirs[case.case]) for case in cases]
    ahead = sum(case.ours <= min(case.theirs, theirs[case.case]) for case in cases)
    return [
        *found,
        Case(f"geometric mean of {len(found)} beside chDB", "ratio", report.geometric_mean(found), "chdb", 1.0),
        Case("ahead of the better of both", f"queries of {len(found)}", ahead, "all", len(found)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="1,000,000 (default), 10,000,000, …")
    parser.add_argument("--seed", type=int, default=None, help="of the literals; another one each time unless given")
    parser.add_argument("--quick", action="store_true", help="200,000 rows, 3 repeats, no first runs")
    parser.add_argument("--only", nargs="*", default=(), help="names of queries, Q0 to Q42")
    parser.add_argument("--no-first-runs", action="store_true", help="leave the fresh processes out")
    parser.add_argument("--first-run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first_run:
        measure_first(arguments.first_run, arguments.rows)
        return
    rows, repeats = (200_000, 3) if arguments.quick else (arguments.rows, REPEATS)
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)
    table = ssb.rows_of(f"clickbench-{rows}", lambda: clickbench_data.generate(rows, DATA_SEED))
    every = literals(table, seed)
    chosen = {name: query for name, query in every.items() if not arguments.only or name in arguments.only}
    cases = compare(chosen, table, repeats)
    beside = beside_chdb(chosen, cases, rows, repeats)
    cases.append(Case(f"geometric mean of {len(chosen)}", "ratio", report.geometric_mean(cases), "duckdb", 1.0))
    cases += beside
    if not (arguments.quick or arguments.no_first_runs):
        runs = first_runs(chosen, rows)
        cases += [Case(f"{name} first run", "ms", one.first, "later runs", one.later) for name, one in runs.items()]
        for name, one in runs.items():
            print(f"{name:4} {one.where()}", file=sys.stderr)
    title = f"ClickBench, {rows:,} generated rows, {ssb.SEGMENTS} segments, {ssb.THREADS} threads, seed {seed}"
    report.publish("clickbench", f"{title}, load {os.getloadavg()[0]:.2f}, ms", cases)


if __name__ == "__main__":
    main()
