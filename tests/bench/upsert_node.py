"""`merlot serve` with an upsert table, stopped, killed, started again: `python -m tests.bench.upsert_node [--quick]`.

Seconds from the start of the process to the first right answer, over HTTP, of all rows; Python's own start, the files'
opening and the stream's are in it. 1 million keys in 5 million rows with a checkpoint, after SIGKILL and after SIGTERM,
and with all snapshots deleted; 10 million keys with a checkpoint. A stop is measured from SIGTERM to the process' end.
Pinot's figures, for 1 million keys, were measured on the same kind of machine with the same messages, not in this run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench import upsert_stream
from tests.bench.report import ROOT, Case, publish
from tests.bench.upsert_stream import FLUSH_ROWS, NEWEST, write_versions

from merlot.ports import free_port

PINOT_S = 8.0
"""Restart to queryable with 1 million keys: 8 to 16 s."""
PINOT_STOP_S = 62.0
PATIENCE_S = 600.0
ASK_S = 0.01


class Serving:
    """A process of `merlot serve` over a folder, and what is asked of it."""

    def __init__(self, folder: Path, keys: int, versions: int) -> None:
        self._folder = folder
        self._keys, self._versions = keys, versions
        self._url = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        last = 1_700_000_000_000 + versions - 1
        self._wanted = [keys, sum(100 + number % 900 for number in range(keys)), last, last]

    def start(self) -> float:
        """Seconds until it answers as it should, of a table that it has."""
        begun = time.perf_counter()
        self.launch()
        self.wait(lambda: self._newest() == self._wanted)
        return time.perf_counter() - begun

    def launch(self) -> None:
        """Begin, and wait for nothing."""
        port = self._url.rpartition(":")[2]
        command = [sys.executable, "-m", "merlot.cli.main", "serve", "--data", str(self._folder / "data")]
        command += ["--stream-folders", str(self._folder)]
        # As installed: with compiled modules, which the checkout may have none of.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "pycache")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen([*command, "--port", port], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)

    def end(self, number: signal.Signals) -> float:
        """Seconds from a signal to the end of the process."""
        assert self._process is not None
        begun = time.perf_counter()
        self._process.send_signal(number)
        self._process.wait(PATIENCE_S)
        self._process = None
        return time.perf_counter() - begun

    def fill(self) -> None:
        """Make the table, and wait until all rows are sealed and in a checkpoint."""
        file = self._folder / "topic" / "0" / "messages.json"
        file.parent.mkdir(parents=True)
        file.touch()
        write_versions(file, self._keys, self._versions)
        self.launch()
        self.wait(lambda: self._call("/health") is not None)
        rows = self._keys * self._versions
        table = upsert_stream.manifest(self._folder / "topic", min(FLUSH_ROWS, rows // 4), snapshot="ENABLE")
        self._call("/apply", table.model_dump_json(by_alias=True, exclude_unset=True))
        self.wait(lambda: self._num_sealed() == rows and self._num_missing() == 0)

    def lose_snapshots(self) -> None:
        """As if they had never been kept."""
        data = self._folder / "data"
        for folder in (*data.glob("server*/snapshots"), *data.glob("deepstore/*/upserts")):
            shutil.rmtree(folder)

    def wait(self, is_so: Any) -> None:
        """Ask until it is."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                raise SystemExit("the node does not get there")
            time.sleep(ASK_S)

    def _newest(self) -> list[Any] | None:
        found = self._call("/query/sql", json.dumps({"sql": NEWEST}))
        return found["resultTable"]["rows"][0] if found and not found["exceptions"] else None

    def _num_sealed(self) -> int:
        found = self._call("/segments/messages/metadata") or {}
        return sum(int(one["totalDocs"]) for one in found.values() if one["crc"])

    def _num_missing(self) -> int:
        found = self._call("/tables/messages/stream") or {}
        told = [one.get("upsert") or {} for part in found.get("partitions", ()) for one in part["replicas"].values()]
        return sum(one.get("snapshotsMissing", 1) if one.get("snapshotMs") else 1 for one in told) if told else 1

    def _call(self, path: str, body: str | None = None) -> Any:
        """None while nobody answers."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, None if body is None else body.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except OSError:
            return None
        return json.loads(text) if text[:1] in (b"{", b"[") else text

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def measured(keys: int, versions: int, *, replays: bool) -> dict[str, float]:
    """Seconds of each start and stop."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="upserts_", dir=ROOT / "build") as folder,
        Serving(Path(folder), keys, versions) as node,
    ):
        node.fill()
        node.end(signal.SIGKILL)
        found = {"killed": node.start(), "stop": node.end(signal.SIGTERM), "stopped": node.start()}
        if replays:
            node.end(signal.SIGKILL)
            node.lose_snapshots()
            found["replayed"] = node.start()
        node.end(signal.SIGTERM)
    print(keys, versions, found)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the keys")
    part = 10 if parser.parse_args().quick else 1
    few, many = measured(1_000_000 // part, 5, replays=True), measured(10_000_000 // part, 1, replays=False)
    small, large = f"{1_000_000 // part:,} keys, {5_000_000 // part:,} rows", f"{10_000_000 // part:,} keys"
    cases = [
        Case(f"killed, {small}, with a checkpoint", "s", few["killed"], "Pinot", PINOT_S),
        Case(f"stopped, {small}, with a checkpoint", "s", few["stopped"], "Pinot", PINOT_S),
        Case(f"killed, {small}, snapshots lost", "s", few["replayed"], "Pinot", PINOT_S),
        Case(f"killed, {large}, with a checkpoint", "s", many["killed"], "Pinot, 1 M keys", PINOT_S),
        Case(f"stopped, {large}, with a checkpoint", "s", many["stopped"], "Pinot, 1 M keys", PINOT_S),
        Case(f"graceful stop, {small}", "s", few["stop"], "Pinot", PINOT_STOP_S),
        Case(f"graceful stop, {large}", "s", many["stop"], "Pinot, 1 M keys", PINOT_STOP_S),
    ]
    publish("upsert_node", "A node with an upsert table, from its process' start to the first right answer", cases)


if __name__ == "__main__":
    main()
