"""Upserts end to end on one core: `python -m tests.bench.upsert_stream [--quick]`. A `files` stream, JSON of 97 bytes,
decoded, decided, appended, sealed and committed by an embedded node; and a restart of it.

A million keys (LONG), five times each, in segments of 500,000 rows. Rows per second are of CPU time, all of the node's.
Pinot's figures were measured on the same kind of machine with the same load, not in this run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import ingest
from tests.bench.report import ROOT, Case, publish

from merlot.spec.table import Table

KEYS = 1_000_000
VERSIONS = 5
FLUSH_ROWS = 500_000
BATCH = 20_000
PEER = "Pinot"
PINOT_ROWS_PER_S = 44_000.0
PINOT_RESTART_S = 9.8
NEWEST = "SELECT count(*), sum(amount), min(at), max(at) FROM messages"


def manifest(topic: Path, flush_rows: int, **more: str) -> Table:
    """The messages of `ingest`, of which later ones of an id replace earlier ones. more: of the upsert's settings."""
    stored = ingest.manifest(topic, flush_rows).model_dump(mode="json", by_alias=True, exclude_unset=True)
    modulo = {"functionName": "Modulo", "numPartitions": 1}
    stored["spec"]["schema"]["primaryKey"] = ["id"]
    stored["spec"] |= {
        "partitioning": {"columns": {"id": modulo}},
        "upsert": {"config": {"mode": "FULL", "comparisonColumns": ["at"], **more}},
    }
    return Table.model_validate(stored)


def write_versions(file: Path, keys: int, versions: int = VERSIONS) -> None:
    """Each key once, then each again, with a greater time."""
    with file.open("a") as opened:
        for version in range(versions):
            for first in range(0, keys, BATCH):
                numbers = range(first, min(keys, first + BATCH))
                opened.write("".join(ingest.line(number, 1_700_000_000_000 + version) for number in numbers))


class Running(ingest.Running):
    """A node with the upsert table."""

    async def create(self, flush_rows: int) -> None:
        assert isinstance(self.topic, Path)
        text = manifest(self.topic, flush_rows).model_dump_json(by_alias=True, exclude_unset=True)
        async with self.session.post("/apply", data=text, headers={"Content-Type": "application/yaml"}) as answer:
            assert answer.status == 200, await answer.text()

    async def shows_newest(self, keys: int) -> None:
        """Until each key is answered once, with its last version."""
        last = 1_700_000_000_000 + VERSIONS - 1
        wanted = [keys, sum(100 + number % 900 for number in range(keys)), last, last]
        while await self.row(NEWEST) != wanted:
            await asyncio.sleep(0.02)


async def warm_up(folder: Path) -> None:
    """Load every kernel that consuming and sealing take."""
    running = Running(folder)
    write_versions(running.files[0], 1_000)
    await running.start()
    await running.create(flush_rows=2_000)
    await running.shows_newest(1_000)
    while await running.num_sealed() < 4_000:
        await asyncio.sleep(0.02)
    await running.stop()


async def committed(folder: Path, keys: int) -> dict[str, float]:
    """From the first poll until all rows are in committed segments; then the node begins anew."""
    await warm_up(folder / "warm")
    rows = keys * VERSIONS
    running = Running(folder)
    write_versions(running.files[0], keys)
    await running.start()
    started, cpu = time.perf_counter(), time.process_time()
    await running.create(flush_rows=min(FLUSH_ROWS, rows // 4))
    while await running.num_sealed() < rows:
        await asyncio.sleep(0.05)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    await running.shows_newest(keys)
    stopped = time.perf_counter()
    await running.stop()
    stop_s = time.perf_counter() - stopped
    again = Running(folder)
    begun, cpu = time.perf_counter(), time.process_time()
    await again.start()
    await again.shows_newest(keys)
    restart_s, restart_cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    await again.stop()
    return {
        "rowsPerS": rows / cpu_s,
        "rowsPerSOfWall": rows / wall_s,
        "stopS": stop_s,
        "restartS": restart_s,
        "restartCpuS": restart_cpu_s,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the keys")
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "KEYS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        folder, keys = arguments.child
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
        print(json.dumps(asyncio.run(committed(Path(folder), int(keys)))))
        return
    keys = KEYS // 5 if arguments.quick else KEYS
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="upserts_", dir=ROOT / "build") as folder:
        command = [sys.executable, "-m", "tests.bench.upsert_stream", "--child", folder, str(keys)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    size = f"{keys:,} keys, {keys * VERSIONS:,} rows"
    cases = [
        Case("end to end, through commit", "rows/s of CPU", found["rowsPerS"], PEER, PINOT_ROWS_PER_S),
        Case("the same by the clock", "rows/s", found["rowsPerSOfWall"], PEER, PINOT_ROWS_PER_S),
        Case("restart until all is answered", "s", found["restartS"], PEER, PINOT_RESTART_S),
        Case("the same of CPU", "s", found["restartCpuS"], PEER, PINOT_RESTART_S),
        Case("graceful stop", "s", found["stopS"], PEER, 62.0),
    ]
    publish("upsert_stream", f"Upserts end to end, one core, {size}", cases)


if __name__ == "__main__":
    main()
