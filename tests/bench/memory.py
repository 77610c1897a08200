"""SSB where memory is short: `python -m tests.bench.memory [--quick]`. As root: it makes control groups.

A node (`merlot serve`) is bounded by a control group, files that it has mapped included, and asked SSB's thirteen
queries over HTTP: 6 M rows and ten times as many in 4 GB, which tells whether times grow with the rows; then one
segment of more than 1 GB in 512 MB; then a GROUP BY of more groups than a query may have, after which the node answers
on. What a node takes is its own memory; pages of files come and go.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench import ssb, ssb_data
from tests.bench.report import ROOT, Case, geometric_mean, publish

from merlot.catalog.publish import record_of
from merlot.ids import RawTableName, TableName
from merlot.ports import free_port
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.shape import shape_of
from merlot.store.deepstore import DeepStore
from merlot_spark.publish import ControllerClient, PublishOrder

GROUPS = Path("/sys/fs/cgroup")
PATIENCE_S = 600.0
REPEATS = 3
ROWS, COPIES = ssb_data.ROWS, 10
LARGE_ROWS, SCARCE_BYTES = 40_000_000, 512 << 20
MANY_GROUPS = "SELECT $segmentName, $docId, COUNT(*) FROM ssb GROUP BY $segmentName, $docId LIMIT 10"


@contextmanager
def control_group(limit_bytes: int) -> Iterator[Path]:
    """Where a process is bounded that joins; of either version."""
    is_second = (GROUPS / "cgroup.controllers").exists()
    folder = (GROUPS if is_second else GROUPS / "memory") / f"merlot-bench-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.max" if is_second else "memory.limit_in_bytes")).write_text(str(limit_bytes))
    except OSError as error:
        raise SystemExit(f"no control group can be made, run it as root: {error}") from error
    try:
        yield folder
    finally:
        folder.rmdir()


class Serving:
    """A node in a control group, and what it is asked."""

    def __init__(self, folder: Path, group: Path) -> None:
        self._folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        serve = [sys.executable, "-m", "merlot.cli.main", "serve", "--data", str(folder), "--port", str(port)]
        self._process = subprocess.Popen(["sh", "-c", join, "sh", *serve], cwd=ROOT, stdout=subprocess.DEVNULL)
        self._wait(lambda: self._get("/health") is not None)

    def publish(self, segments: Sequence[Path]) -> None:
        """Serve these files, which are moved."""
        client, store = ControllerClient(self.url), DeepStore(str(self._folder / "deepstore"))
        schema = json.loads(ssb.schema_of(ssb_data.generate(10)).model_dump_json(by_alias=True, exclude_defaults=True))
        manifest = {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": "ssb"},
            "spec": {"schema": schema},
        }
        client.apply(json.dumps(manifest))
        shape = shape_of(client.table("ssb").table.spec)
        records = []
        for path in segments:
            metadata = ImmutableSegment.open(path).metadata
            url = store.url_of(TableName("ssb_OFFLINE"), metadata.key)
            record = record_of(metadata, url, path.stat().st_size)
            store.put(path, url)
            path.unlink()
            records.append(record.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        client.publish(PublishOrder(table=RawTableName("ssb"), records=records, shape=shape))
        wanted = sum(record["totalDocs"] for record in records)
        self._wait(lambda: self.query("SELECT COUNT(*) FROM ssb").get("rows") == [[wanted]])

    def query(self, sql: str) -> dict[str, Any]:
        """Milliseconds, rows or error."""
        body = json.dumps({"sql": f"SET timeoutMs = 120000; {sql}"}).encode()
        request = urllib.request.Request(f"{self.url}/query/sql", body, {"Content-Type": "application/json"})
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found = json.loads(answer.read())
        errors = [error["message"] for error in found["exceptions"]]
        rows = (found.get("resultTable") or {}).get("rows")
        return {"ms": (time.perf_counter() - begun) * 1000, "rows": rows, "errors": errors}

    def times(self) -> dict[str, tuple[float, float]]:
        """Milliseconds of each query: the first run, and the median of the later ones."""
        found = {}
        for name, sql in ssb_data.QUERIES.items():
            first, *later = (self.answered(sql) for _ in range(1 + REPEATS))
            found[name] = first, statistics.median(later)
        return found

    def answered(self, sql: str) -> float:
        """Milliseconds of a query that must not fail."""
        found = self.query(sql)
        if found["errors"]:
            raise SystemExit(f"{sql}: {found['errors']}")
        return float(found["ms"])

    def _get(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            return None

    def _wait(self, is_so: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise SystemExit(f"the node does not get there exit={self._process.poll()}")
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@contextmanager
def serving(limit_bytes: int, segments: Sequence[Path]) -> Iterator[Serving]:
    """A node that serves copies of these files."""
    build = ROOT / "build"
    with tempfile.TemporaryDirectory(prefix="memory_", dir=build) as name, control_group(limit_bytes) as group:
        copies = [Path(shutil.copy(path, Path(name) / path.name)) for path in segments]
        node = Serving(Path(name) / "data", group)
        try:
            node.publish(copies)
            yield node
        finally:
            node.stop()


def built(rows: int, num_segments: int, copy: int = 0) -> list[Path]:
    """Files of generated rows; a copy has the same rows under names of its own."""
    table = ssb.rows_of(f"ssb-{rows}", lambda: ssb_data.generate(rows))
    return ssb.build(f"ssb{copy or ''}", table, num_segments)


def scarce(segment: Path, bound: int) -> list[Case]:
    """Of a segment that is asked for with little memory, beside the same with as much as it takes."""
    label = f"{segment.stat().st_size >> 20:,} MB in {bound >> 20} MB"
    with serving(segment.stat().st_size + (4 << 30), [segment]) as node:
        ample = node.times()
    try:
        with serving(bound, [segment]) as node:
            short = node.times()
    except OSError:
        print(f"{label}: the node was killed for want of memory")
        return []
    return [Case(f"{name}: {label}", "ms", short[name][1], "ample memory", ample[name][1]) for name in ample]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, of the memory a fourth")
    options = parser.parse_args()
    part = 10 if options.quick else 1
    rows, bound = ROWS // part, (1 if options.quick else 4) << 30
    segments = [path for copy in range(COPIES) for path in built(rows, ssb.SEGMENTS, copy)]
    with serving(bound, segments[: ssb.SEGMENTS]) as node:
        small = node.times()
    with serving(bound, segments) as node:
        large = node.times()
        found = node.query(MANY_GROUPS)
        if not any("too many groups" in text for text in found["errors"]):
            raise SystemExit(f"{MANY_GROUPS}: no error of too many groups but {found['errors'] or found['rows']}")
        print(f"past the limit on groups after {found['ms']:.0f} ms: {found['errors'][0][:120]}")
        node.answered("SELECT COUNT(*) FROM ssb")
    cases = [
        Case(f"{name}: {rows * COPIES:,} rows", "ms", large[name][1], f"10 x {rows:,}", COPIES * small[name][1])
        for name in small
    ]
    cases.append(Case("geometric mean", "ratio", geometric_mean(cases), "linear", 1.0))
    (whole,) = built(LARGE_ROWS // part, 1)
    cases += scarce(whole, (SCARCE_BYTES >> 1) if options.quick else SCARCE_BYTES)
    publish("memory", "SSB where memory is short, through HTTP", cases)


if __name__ == "__main__":
    main()
