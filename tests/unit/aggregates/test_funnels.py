"""Funnels ask for the memory of their answers, and take a bounded number of duration functions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.funnel_windows import MOST_DURATIONS, FunnelSettings
from merlot.tree.nodes import Value
from merlot.tree.types import LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors.account import Working
from merlot.vectors.errors import LimitExceededError

NUM_GROUPS = 2000


def refused(name: str, types: tuple[SqlType, ...], constants: tuple[Value, ...]) -> str:
    """The error of the answers of many groups in little memory."""
    function = registry.named(name)
    call = AggregateCall(types=types, constants=constants, result=function.result(types, constants))
    columns = [pa.concat_arrays([column] * NUM_GROUPS) for column in function.identity(call)]
    with Working(400_000), pytest.raises(LimitExceededError) as caught:
        function.finish(call, columns)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "num_bytes"),
    [
        ("funnelmatchstep", "", NUM_GROUPS * 62 * (1 + 4)),
        ("funnelstepdurationstats", "DURATIONFUNCTIONS=AVG,COUNT,MAX", NUM_GROUPS * 62 * 3 * 2 * 8),
    ],
)
def test_figures_of_all_steps_and_groups_are_expected(name: str, settings: str, num_bytes: int) -> None:
    assert f"{name.upper()} bytes={num_bytes} " in refused(name, (LONG, LONG), (5, 62, settings))


def test_counts_of_all_steps_and_groups_are_expected() -> None:
    error = refused("funnelcount", (LONG, SqlType(TypeName.INT)), (62,))
    assert f"FUNNELCOUNT bytes={NUM_GROUPS * 62 * 8} " in error


def test_duration_functions_are_at_most_a_hundred() -> None:
    names = ["avg", "PERCENTILE95"] * (MOST_DURATIONS // 2)
    assert len(FunnelSettings.of(f"durationFunctions={','.join(names)}").durations) == MOST_DURATIONS
    with pytest.raises(ValueError, match="takes at most 100 duration functions got=101"):
        FunnelSettings.of(f"durationFunctions={','.join([*names, 'avg'])}")
