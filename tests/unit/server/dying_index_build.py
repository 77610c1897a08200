"""A program that builds a sidecar and is killed at one of its steps: `SEGMENT INDEXING STEP`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from merlot.segment.build.file_writer import FileWriter
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.spec.indexing import IndexingSpec


def main() -> None:
    path, indexing, last = Path(sys.argv[1]), IndexingSpec.model_validate_json(sys.argv[2]), int(sys.argv[3])
    num_steps, add = 0, FileWriter.add

    def check(*_: Any) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps > last:
            os.kill(os.getpid(), signal.SIGKILL)

    def check_and_add(*arguments: Any) -> Any:
        check()
        return add(*arguments)

    FileWriter.add = check_and_add  # type: ignore[method-assign]
    segment = ImmutableSegment.open(path)
    build_sidecar(segment, plan_of(segment.metadata, indexing), indexing, path.parent, check)
