"""Undo fixes of the history one by one, and see that the tests notice: `python -m tests.mutants [--level LEVEL]`.

Each mutant of the tables beside this module brings one defect back into a copy of the sources. Its own tests run first,
up to the first that fails, and the rest of their folders only if they pass. Exits with 1 if any mutant survives.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.budget import LEVELS
from tests.mutants.scratch import TIMED_OUT, Outcome, Run, Scratch, copy_tree
from tests.mutants.table import ROOT, Mutant, UnfitMutantError, chosen, read_tables

HEAD = ("area", "mutant", "commit", "result", "seconds", "by")


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    run: Run
    seconds: float
    is_expected: bool
    """Whether its own tests decided."""

    @property
    def is_caught(self) -> bool:
        return self.run.outcome is Outcome.FAILED

    @property
    def word(self) -> str:
        if self.run.outcome is Outcome.BROKEN:
            return "UNFIT"
        if not self.is_caught:
            return "SURVIVED"
        return ("caught" if self.is_expected else "caught elsewhere") + (", timed out" if self.is_late else "")

    @property
    def is_late(self) -> bool:
        """Whether the test did not fail of itself: it may be the mutant that hangs, or the machine that is busy."""
        return self.run.why == TIMED_OUT

    @property
    def cells(self) -> tuple[str, ...]:
        one = self.mutant
        by = self.run.first or self.run.outcome.value
        return one.area, one.id, one.commit, self.word, f"{self.seconds:.1f}", by


def judge(scratch: Scratch, mutant: Mutant, level: str, log: Path | None) -> Verdict:
    """Run the mutant's own tests, and the rest of their folders if those pass."""
    started = time.monotonic()
    with scratch.mutated(mutant):
        run = scratch.run(mutant.tests, level=level, keyword=mutant.keyword, log=log)
        is_expected = run.outcome in (Outcome.FAILED, Outcome.BROKEN)
        if not is_expected:
            run = scratch.run(mutant.folders, level=level, log=log)
    return Verdict(mutant, run, time.monotonic() - started, is_expected)


def control(scratch: Scratch, mutant: Mutant, level: str, log: Path | None) -> Verdict:
    """Run the mutant's own tests over the sound sources."""
    started = time.monotonic()
    run = scratch.run(mutant.tests, level=level, keyword=mutant.keyword, log=log)
    return Verdict(mutant, run, time.monotonic() - started, is_expected=True)


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--level", choices=LEVELS, default="quick", help="how much the tests do (quick)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="areas, ids or commits")
    parser.add_argument("--list", action="store_true", help="print the table and end")
    parser.add_argument(
        "--control", action="store_true", help="run the mutants' tests without any mutant: all must pass"
    )
    parser.add_argument("--source", type=Path, default=ROOT, help="sources to copy, of another commit perhaps")
    parser.add_argument("--logs", type=Path, help="folder for what pytest printed, a file for each mutant")
    return parser.parse_args()


def report(verdicts: list[Verdict], *, is_control: bool) -> int:
    """Print the totals; returns the exit status."""
    num_failed = sum(one.is_caught for one in verdicts)
    num_good = sum(one.run.outcome is Outcome.PASSED for one in verdicts) if is_control else num_failed
    seconds = sum(one.seconds for one in verdicts)
    what = "pass without a mutant" if is_control else "caught"
    print(f"\n{num_good} of {len(verdicts)} {what}, {seconds:.0f} s")
    for one in verdicts:
        if not is_control and not one.is_caught:
            print(f"{one.word}: {one.mutant.area}/{one.mutant.id} ({one.mutant.commit} {one.mutant.subject})")
            print(f"  {one.run.outcome.value}: {' '.join(one.mutant.tests)} {one.run.why}".rstrip())
    return 0 if num_good == len(verdicts) else 1


def main() -> int:
    told = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    mutants = chosen(read_tables(), told.only)
    if told.list:
        for one in mutants:
            print(row((one.area, one.id, one.commit, one.subject, " ".join(one.tests))))
        return 0
    if told.logs is not None:
        told.logs.mkdir(parents=True, exist_ok=True)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="merlot-mutants-", ignore_cleanup_errors=True) as folder:
        scratch = Scratch(Path(folder))
        copy_tree(told.source, scratch.tree)
        print(f"{row(HEAD)}\n{row('---' for _ in HEAD)}", flush=True)
        for one in mutants:
            log = None if told.logs is None else told.logs / f"{one.area}-{one.id}.txt"
            verdicts.append((control if told.control else judge)(scratch, one, told.level, log))
            cells = verdicts[-1].cells
            print(row((*cells[:3], verdicts[-1].run.outcome.value, *cells[4:]) if told.control else cells), flush=True)
    return report(verdicts, is_control=told.control)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UnfitMutantError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
