"""Set how many cases a run of the tests tries, and the seed of its random cases.

`MERLOT_TESTS` chooses one of three levels:

- `quick`, the default, of `make test`: few cases, every seed fixed, tests that are marked `slow` left out;
- `all`, of `make test-all`: every test, more cases, a random seed;
- `fuzz`, of `make fuzz`: many cases, or as many as fit into `MERLOT_FUZZ_SECONDS` per test.

`MERLOT_SEED` sets the seed of a run; a run with a random seed prints it first. The variable that a test passes to
`count` sets the number of cases of that test alone.
"""

import os

LEVELS = ("quick", "all", "fuzz")
LEVEL = os.environ.get("MERLOT_TESTS") or "quick"
IS_QUICK = LEVEL == "quick"
IS_FUZZ = LEVEL == "fuzz"
SECONDS = float(os.environ.get("MERLOT_FUZZ_SECONDS") or 600) if IS_FUZZ else 0.0
"""Seconds for which each random test runs; 0: it tries a fixed number of cases."""

if LEVEL not in LEVELS:
    raise ValueError(f"MERLOT_TESTS is {LEVEL!r}: set it to one of {', '.join(LEVELS)}")


def count(variable: str, *, quick: int, every: int, fuzz: int | None = None) -> int:
    """The number of cases at this level; `every` is for `make test-all`, and for `make fuzz` unless `fuzz` is given."""
    if told := os.environ.get(variable):
        return int(told)
    return {"quick": quick, "all": every, "fuzz": every if fuzz is None else fuzz}[LEVEL]


def examples(every: int) -> int:
    """The number of examples of a Hypothesis test: at the quick level four tenths."""
    return -(-every * 4 // 10) if IS_QUICK else every


def seed(fixed: int = 7) -> int:
    """MERLOT_SEED, which `tests/conftest.py` draws above the quick level; without it the test's own constant."""
    return int(os.environ.get("MERLOT_SEED") or fixed)
