"""Bounds of functions that rise with a column: what they prune, and that they do rise, clock changes included."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from merlot.functions.evaluate import evaluate as values_of
from merlot.functions.source import ValueSource
from merlot.functions.time_words import TRUNC_UNITS
from merlot.query.pruning import evaluate as pruning
from merlot.query.pruning.monotone import column_of
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.query.pruning.verdicts import ALL, NONE, SOME
from merlot.tree.nodes import Call, Column, Literal
from merlot.tree.types import LONG, STRING
from merlot.values.types import TypeName

DAY = 86_400_000
MONTHS = ", ".join(str(month * 365 * DAY) for month in range(12))
DAYS = ", ".join(str(day * DAY) for day in (0, 1, *range(3, 12)))
"""So many that they are counted along the bounds."""
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")


@pytest.mark.parametrize(
    ("condition", "verdicts"),
    [
        (f"DATETRUNC('DAY', t) = {2 * DAY}", [NONE, ALL, SOME, SOME]),
        (f"DATETRUNC('DAY', t) >= {3 * DAY}", [NONE, NONE, SOME, SOME]),
        (f"DATETRUNC('DAY', t, 'MILLISECONDS', 'Asia/Kolkata') < {DAY}", [ALL, NONE, NONE, SOME]),
        (f"DATETRUNC('MONTH', t) IN (0, {31 * DAY})", [ALL, ALL, ALL, SOME]),
        (f"DATETRUNC('MONTH', t) IN ({MONTHS})", [ALL, ALL, ALL, SOME]),
        (f"DATETRUNC('DAY', t) IN ({DAYS})", [SOME, NONE, SOME, SOME]),
        (f"DATETRUNC('DAY', t) NOT IN ({DAYS})", [SOME, ALL, SOME, SOME]),
        (f"t / {DAY} > 2.5", [NONE, SOME, ALL, SOME]),
        (f"t + {DAY} <= {2 * DAY}", [SOME, NONE, NONE, SOME]),
        (f"NOT t + {DAY} <= {2 * DAY}", [SOME, ALL, ALL, SOME]),
        (f"t * {1 << 62} > 0", [SOME, SOME, SOME, SOME]),
        (f"ROUND(t, {DAY}) BETWEEN {2 * DAY} AND {3 * DAY}", [NONE, ALL, ALL, SOME]),
        ("t * -1 > 0", [SOME, SOME, SOME, SOME]),
        ("MOD(t, 7) = 9", [SOME, SOME, SOME, SOME]),
    ],
)
def test_functions_of_a_column_prune_by_its_bounds(
    condition: str, verdicts: list[int], where: Callable[..., Any], ranged: Callable[..., SegmentStatistics]
) -> None:
    known = ranged(t=[(5, DAY + 5), (2 * DAY, 3 * DAY - 1), (3 * DAY - 1, 3 * DAY), None])
    assert pruning.evaluate(where(condition), known).tolist() == verdicts
    assert pruning.evaluate(where(condition), known).tolist() == verdicts


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", TRUNC_UNITS)
def test_truncation_rises_with_the_instant(unit: str, zone: str) -> None:
    words = [Literal(word, STRING) for word in (unit, "MILLISECONDS", zone, "MILLISECONDS")]
    column = Column("t", LONG)
    call = Call("datetrunc", (words[0], column, *words[1:]), LONG)
    assert column_of(call) == column
    rng = np.random.default_rng(7)
    changes = _clock_changes(zone)
    near = (changes[:, None] + rng.integers(-3 * DAY, 3 * DAY, (len(changes), 400))).ravel()
    anywhere = rng.integers(-(2**63), 2**63 - 1, 2000)
    this_age = rng.integers(-(10**13), 10**13, 5000)
    instants = np.sort(np.concatenate([near, anywhere, this_age, [-(2**63), 2**63 - 1]]))
    starts = values_of(call, ValueSource(TypeName.LONG, pa.array(instants))).data
    assert (starts[1:] >= starts[:-1]).all()
    assert (starts <= instants).all()


def _clock_changes(zone: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Hours of 2024 and 2040 in which the zone's offset changes, ms."""
    found = []
    for year in (2024, 2040):
        moment = datetime(year, 1, 1, tzinfo=UTC)
        offset = moment.astimezone(ZoneInfo(zone)).utcoffset()
        while moment.year == year:
            moment += timedelta(hours=1)
            now = moment.astimezone(ZoneInfo(zone)).utcoffset()
            if now != offset:
                found.append(int(moment.timestamp() * 1000))
            offset = now
    return np.array(found, np.int64)
