"""Eight clients that ask ClickBench's queries, each text once, over HTTP: how much of two cores Merlot makes use of.

Beside DuckDB asked by eight threads of one process, without HTTP. Merlot runs as a broker and one server, and as a
broker and two servers with half of the segments each, which share no interpreter: what the interpreter's lock costs is
the difference. Cores are those that brokers and servers keep busy; for DuckDB its process.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench import clickbench_data, ssb
from tests.bench.clickbench import DATA_SEED, literals
from tests.bench.clickbench_queries import Query
from tests.bench.http_load import run_load
from tests.bench.report import Case, publish
from tests.support.processes import ClusterProcesses

from merlot.catalog.publish import upload
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.manifest import load
from merlot.spec.table import Table
from merlot_spark.zookeeper import ZooKeeper

CLIENTS = 8
NUM_SEEDS = 40
LONG = frozenset({"Q28"})
"""Takes a third of the time of all others together."""


def manifest(columns: Sequence[tuple[str, str]], name: str = "hits") -> Table:
    fields = "".join(f"\n      - {{name: {column}, type: {kind}}}" for column, kind in columns)
    text = "apiVersion: merlot.dev/v1alpha1\nkind: Table\nmetadata: {name: %s}\nspec:\n  schema:\n    fields:%s\n"
    return load(text % (name, fields))[0]


@contextmanager
def cluster(folder: Path, rows: int, num_servers: int) -> Iterator[ClusterProcesses]:
    """A broker and servers that have the rows in eight segments."""
    table = manifest(clickbench_data.SCHEMA)
    every = ssb.rows_of(f"clickbench-{rows}", lambda: clickbench_data.generate(rows, DATA_SEED))
    built = folder / "built"
    built.mkdir(parents=True)
    with (
        ZooKeeper(folder / "zookeeper") as zookeeper,
        ClusterProcesses(
            folder / "cluster", f"{zookeeper.hosts}/bench", num_servers=num_servers, level="WARNING"
        ) as some,
    ):
        size = -(-rows // ssb.SEGMENTS)
        records = []
        for number in range(ssb.SEGMENTS):
            request = BuildRequest(name=f"hits_{number}", table=table.raw_name, schema=table.spec.table_schema)
            segment = build_segment(request, every.slice(number * size, size).combine_chunks(), built)
            records.append(upload(some.deep_store, segment, table.name))
        some.add_table(table, records)
        yield some


def ask_merlot(
    folder: Path, rows: int, num_servers: int, chosen: Sequence[Query], seconds: float
) -> tuple[float, float]:
    """Queries per second, cores of broker and servers."""
    with cluster(folder, rows, num_servers) as some:
        url = f"{some.broker.url}/query/sql"
        run_load(url, [query.sql for query in chosen[:43]], CLIENTS, seconds / 2)  # columns are decoded and joined
        roles = (some.broker, *some.servers)
        before = sum(one.cpu_s() for one in roles)
        load = run_load(url, [query.sql for query in chosen[43:]], CLIENTS, seconds)
        if load.errors:
            raise SystemExit(f"{load.errors} answers had exceptions")
        return load.qps, (sum(one.cpu_s() for one in roles) - before) / seconds


def ask_duckdb(rows: int, chosen: Sequence[Query], seconds: float) -> tuple[float, float]:
    """Queries per second, cores of this process."""
    connection = ssb.duckdb_over(
        ssb.rows_of(f"clickbench-{rows}", lambda: clickbench_data.generate(rows, DATA_SEED)), "hits"
    )
    turns, done = itertools.cycle(chosen), [0] * CLIENTS
    ends_at = time.perf_counter() + seconds
    guard = threading.Lock()

    def client(number: int) -> None:
        mine = connection.cursor()
        while time.perf_counter() < ends_at:
            with guard:
                query = next(turns)
            mine.execute(query.duckdb).fetchall()
            done[number] += 1

    before, threads = time.process_time(), [threading.Thread(target=client, args=(one,)) for one in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.close()
    return sum(done) / seconds, (time.process_time() - before) / seconds


def texts(rows: int) -> list[Query]:
    """All queries of many seeds, shuffled: hardly any text twice."""
    table = ssb.rows_of(f"clickbench-{rows}", lambda: clickbench_data.generate(rows, DATA_SEED))
    shuffled = random.Random(1)
    found: list[Query] = []
    for seed in range(NUM_SEEDS):
        some = [query for name, query in literals(table, seed).items() if name not in LONG]
        shuffled.shuffle(some)
        found += some
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="fewer rows and seconds")
    options = parser.parse_args(arguments)
    rows, seconds = (200_000, 4.0) if options.quick else (options.rows, 20.0)
    chosen = texts(rows)
    their_qps, their_cores = ask_duckdb(rows, chosen[43:], seconds)
    cases = []
    with tempfile.TemporaryDirectory() as name:
        for num_servers in (1, 2):
            qps, cores = ask_merlot(Path(name) / str(num_servers), rows, num_servers, chosen, seconds)
            label = f"{num_servers} server{'s' if num_servers > 1 else ''}"
            cases.append(Case(f"{label}, throughput", "queries/s, more is better", qps, "duckdb", their_qps))
            cases.append(Case(f"{label}, cores busy", "cores", cores, "duckdb", their_cores))
    publish("concurrent_queries", f"{CLIENTS} clients, ClickBench, {rows:,} rows, load {os.getloadavg()[0]:.2f}", cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
