"""Random segment files that lie under right checksums are refused or answered; none ends the process.

The files are opened, queried and merged by processes of their own, which `forged_segments` describes; one that dies is
told of with the number of the file that it died of, and followed by another. `MERLOT_FORGERIES` sets how many files,
`MERLOT_SEED` the first one's number: `python -m tests.oracle.forged_segments NUMBER 1` repeats one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests import budget

PROGRAM = (sys.executable, "-m", "tests.oracle.forged_segments")
ROOT = Path(__file__).parents[2]
NUM_FILES = budget.count("MERLOT_FORGERIES", quick=12, every=500, fuzz=5000)
PATIENCE_S = 1_800 + NUM_FILES


def outcomes(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """How many files were refused and answered, and what happened else."""
    counts: Counter[str] = Counter()
    problems: list[str] = []
    stop = first + count
    while first < stop:
        command = [*PROGRAM, str(first), str(stop - first)]
        child = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT)
        lines = child.stdout.splitlines()
        cases = [int(line.split()[1]) for line in lines if line.startswith("case ")]
        counts.update(line for line in lines if line in ("refused", "answered"))
        problems += [f"{lines[place - 1]}: {line}" for place, line in enumerate(lines) if line.startswith("failed")]
        if child.returncode == 0:
            break
        last = cases[-1] if cases else first
        problems.append(f"case {last}: process ended with {child.returncode}: {child.stderr[-500:]}")
        first = last + 1
    return counts, problems


@pytest.mark.timeout(PATIENCE_S + 60)
def test_no_forged_segment_ends_a_process_or_is_an_error_that_nobody_raised_on_purpose() -> None:
    first = budget.seed()
    counts, problems = outcomes(first, NUM_FILES)
    print(f"seed={first} {dict(counts)}")
    assert not problems, f"MERLOT_SEED={first}\n" + "\n".join(problems[:10])
    assert counts["refused"] > counts["answered"] > 0
    assert counts.total() == NUM_FILES


@pytest.fixture(scope="module")
def proofs() -> dict[str, str]:
    """What became of each proof, by its name and whether it was checked."""
    # Kernels that check their own bounds raise instead of ending the process.
    unbounded = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [*PROGRAM, "prove"]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=True, env=unbounded, cwd=ROOT
    )
    return dict(line.split(": ", 1) for line in process.stdout.splitlines())


@pytest.mark.timeout(PATIENCE_S + 60)
@pytest.mark.parametrize(
    ("proof", "reason"),
    [("runs", "runs are not those of all docs column=sorted"), ("docs", "instead of")],
    ids=["runs past the docs, which were written past an array", "docs past the buffers, which were read"],
)
def test_a_file_that_ended_a_process_is_refused_and_still_would_without_checks(
    proof: str, reason: str, proofs: dict[str, str]
) -> None:
    assert proofs[f"{proof} checked"].startswith("refused segment file is damaged")
    assert reason in proofs[f"{proof} checked"]
    ends = {f"ended with {-number}" for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)}
    assert proofs[f"{proof} unchecked"] in ends
