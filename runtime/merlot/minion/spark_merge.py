"""Run a merge as a Spark job in a process of its own; the minion publishes the segments that the job has uploaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks.queue import TaskRecord
from merlot.errors import InvalidInputError, UnavailableError
from merlot.minion.control import TaskControl
from merlot.spec import manifest
from merlot.spec.table import Table

MODULE = "merlot_spark.merge_job"
LOOK_S = 0.2
EXIT_WRONG_INPUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOrder:
    """Work of a job."""

    task: TaskRecord
    table: Table
    inputs: Sequence[SegmentRecord]
    deep_store: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the job reads."""
        return {
            "task": json.loads(self.task.model_dump_json(by_alias=True)),
            "table": manifest.dump(self.table),
            "inputs": [
                json.loads(record.model_dump_json(by_alias=True, exclude_defaults=True)) for record in self.inputs
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLauncher:
    """Starts Spark jobs for this minion."""

    master: str = "local[2]"
    settings: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def is_possible() -> bool:
        """Return whether pyspark and the job are installed."""
        return find_spec("pyspark") is not None and find_spec("merlot_spark") is not None

    def run(self, order: SparkOrder, folder: Path, control: TaskControl) -> list[SegmentRecord]:
        """Run the job and return the records of the segments that it has uploaded. The job ends early if the task is
        stopped."""
        folder.mkdir(parents=True, exist_ok=True)
        document, report, log = folder / "task.json", folder / "report.json", folder / "log.txt"
        report.unlink(missing_ok=True)
        document.write_text(json.dumps(order.to_json()))
        command = [
            *(sys.executable, "-m", MODULE, "--task", str(document), "--report", str(report)),
            *("--deep-store", order.deep_store, "--master", self.master),
            *(text for name, value in self.settings.items() for text in ("--conf", f"{name}={value}")),
        ]
        code = _run(command, log, control)
        answer: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
        if code == 0 and "records" in answer:
            return [SegmentRecord.model_validate(record) for record in answer["records"]]
        reason = answer.get("error") or _last_line(log) or f"exit code {code}"
        family = InvalidInputError if code == EXIT_WRONG_INPUT else UnavailableError
        raise family(f"Spark job failed task={order.task.id} cause={reason}")


def _run(command: Sequence[str], log: Path, control: TaskControl) -> int:
    """Run a command in a process group of its own and return its exit code. The group ends with the task."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_S)
            control.check()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:500] if lines else ""
