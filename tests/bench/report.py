"""Benchmark results: measured in one run beside a named peer, printed as ratios, kept in build/bench/<name>.json."""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "bench"


@dataclass(frozen=True)
class Case:
    """One figure: ours beside the peer's, in the same unit. ratio = ours / theirs."""

    case: str
    unit: str
    ours: float
    peer: str
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else math.nan


LEAST_S = 0.1
"""Short runs are repeated for so long, lest a median be of the few that something else came between."""


def median_ms(action: Callable[[], object], repeats: int) -> float:
    """Median wall time of runs after one that is not counted: of `repeats`, and of more that are short."""
    action()
    times: list[float] = []
    # As Merlot's programs do once they have started: a collection does not visit what modules have made.
    gc.freeze()
    try:
        while len(times) < repeats or sum(times) < LEAST_S:
            start = time.perf_counter()
            action()
            times.append(time.perf_counter() - start)
    finally:
        gc.unfreeze()
    return statistics.median(times) * 1000


def geometric_mean(cases: Sequence[Case]) -> float:
    """Of the ratios."""
    return math.exp(statistics.fmean(math.log(case.ratio) for case in cases))


def publish(name: str, title: str, cases: Sequence[Case]) -> None:
    """Print the table of one benchmark and write its JSON."""
    width = max(len(case.case) for case in cases)
    print(f"\n{title}")
    print(f"{'':{width}}  {'merlot':>12}  {cases[0].peer:>12}  ratio")
    for case in cases:
        print(f"{case.case:{width}}  {case.ours:12,.2f}  {case.theirs:12,.2f}  {case.ratio:5.2f}  {case.unit}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(case), "ratio": round(case.ratio, 4)} for case in cases]
    (OUTPUT / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
