"""CPU time from text to plan: what a broker spends on a query before it asks a server.

    python -m tests.bench.planning

Each text is read (`parse`), and read, bound and planned (`plan`); the point query is also filled from the template of
its shape (`fill`). Figures are microseconds of CPU, the least of some runs, so that other work on the machine matters
little. Compare two commits in turn, and more than once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.bench.planned import TextPlans

from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

RUNS = 15
MIN_RUN_S = 0.02
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "id", "type": "LONG"},
            {"name": "at", "type": "TIMESTAMP", "role": "dateTime", "format": "TIMESTAMP"},
            {"name": "carrier", "type": "STRING"},
            {"name": "delay", "type": "INT"},
        ]
    }
)
POINT = "SELECT COUNT(*), MAX(delay) FROM flights WHERE carrier = 'AA' AND id >= {} AND id < 900 LIMIT 10"
TEXTS = {
    "point query": POINT.format(5),
    "GROUP BY text": "SELECT carrier, COUNT(*) AS flights, AVG(delay) FROM flights WHERE delay BETWEEN 5 AND 60"
    " AND carrier IN ('AA', 'DL', 'UA') GROUP BY carrier HAVING COUNT(*) > 10 ORDER BY flights DESC LIMIT 20",
    "ninety sums": f"SELECT {', '.join(f'SUM(delay + {number})' for number in range(90))} FROM flights",
    "50,000 values": f"SELECT COUNT(*) FROM flights WHERE id IN ({', '.join(map(str, range(50_000)))})",
    "10,000 conditions": f"SELECT COUNT(*) FROM flights WHERE {' OR '.join(f'id = {n}' for n in range(10_000))}",
}


def main() -> None:
    """Print a table of CPU microseconds."""
    print(f"{'':20}{'parse':>10}{'plan':>10}{'fill':>10}")
    for name, text in TEXTS.items():
        fill = f"{cpu_us(_filling()):10.1f}" if name == "point query" else ""
        print(f"{name:20}{cpu_us(partial(parse, text)):10.1f}{cpu_us(partial(_plan, text)):10.1f}{fill}")


def cpu_us(work: Callable[[], object]) -> float:
    """Microseconds of CPU of one call: the least of some runs of as many calls as a run needs."""
    work()
    num_calls = 1
    while (spent := _run_s(work, num_calls)) < MIN_RUN_S:
        num_calls *= 2
    return min(spent, *(_run_s(work, num_calls) for _ in range(RUNS))) / num_calls * 1e6


def _run_s(work: Callable[[], object], num_calls: int) -> float:
    start = time.process_time()
    for _ in range(num_calls):
        work()
    return time.process_time() - start


def _plan(text: str) -> object:
    return plan(bind(parse(text), SCHEMA, {}))


def _filling() -> Callable[[], object]:
    """Return a function that plans another point query at each call, all of one shape."""
    plans = TextPlans(SCHEMA)
    texts = _points()
    return lambda: plans.plan(next(texts))


def _points() -> Iterator[str]:
    number = 0
    while True:
        number = number % 800 + 1
        yield POINT.format(number)


if __name__ == "__main__":
    main()
