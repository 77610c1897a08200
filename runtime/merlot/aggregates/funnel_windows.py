"""Funnels of events in order: FUNNELMAXSTEP, FUNNELMATCHSTEP, FUNNELCOMPLETECOUNT and FUNNELSTEPDURATIONSTATS.

They are called with the time of a row, the first step that holds for it (from 1; 0 if none does), the length of a
window, the number of steps, and settings. A state is the events of each group. `kernels.funnel` has Pinot's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
)
from merlot.aggregates.listed import GroupRuns, offsets_of
from merlot.kernels import funnel
from merlot.kernels.jit import read_only
from merlot.tree.nodes import Value
from merlot.tree.types import INT, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.vector import Vector

MODES: Final = {
    "STRICT_DEDUPLICATION": funnel.DEDUPLICATED,
    "STRICT_ORDER": funnel.IN_ORDER,
    "STRICT_INCREASE": funnel.INCREASING,
    "KEEP_ALL": 8,
}
_KEEP_ALL: Final = MODES["KEEP_ALL"]
_PERCENTS: Final = {"MEDIAN": 50.0, "MIN": 0.0, "MAX": 100.0}
_PERCENTILE: Final = "PERCENTILE"
MOST_DURATIONS: Final = 100
"""Most duration functions of a call: each is a figure for each step of each group."""


@dataclass(frozen=True, slots=True)
class FunnelSettings:
    """Settings in the texts after the steps."""

    modes: int = 0
    gap: int = 0
    """Longest time from an event of a window to the next event; 0 if there is no limit."""
    durations: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse settings joined by semicolons, such as 'STRICT_ORDER;MODE=KEEP_ALL;MAXSTEPDURATION=10'; raise
        ValueError."""
        modes, gap = 0, 0
        durations: tuple[str, ...] = ()
        for part in filter(None, text.upper().split(";")):
            name, is_set, value = part.partition("=")
            if name == "MAXSTEPDURATION" and value.isdecimal() and len(value) < 19 and int(value) > 0:
                gap = int(value)
            elif name == "DURATIONFUNCTIONS":
                durations = _durations(value.split(","))
            elif name == "MODE" or not is_set:
                for mode in (value if is_set else name).split(","):
                    if mode.strip() not in MODES:
                        raise ValueError(f"has no mode {mode.strip()!r}")
                    modes |= MODES[mode.strip()]
            else:
                raise ValueError(f"has no setting {part!r:.100}")
        return cls(modes, gap, durations)


def _durations(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MOST_DURATIONS:
        raise ValueError(f"takes at most {MOST_DURATIONS} duration functions got={len(names)}")
    return tuple(_duration(name.strip()) for name in names)


def _duration(name: str) -> str:
    if name not in ("AVG", "COUNT", *_PERCENTS) and _percent(name) is None:
        raise ValueError(f"has no duration function {name!r}")
    return name


def _percent(name: str) -> float | None:
    """Return the percentile of a duration function; None if it is no percentile."""
    if name in _PERCENTS:
        return _PERCENTS[name]
    number = name.removeprefix(_PERCENTILE)
    is_number = name.startswith(_PERCENTILE) and number.replace(".", "", 1).isdecimal()
    return float(number) if is_number and 0 <= float(number) <= 100 else None


class EventState(State):
    """Events of each group that are steps, or all events."""

    def __init__(self, *, keeps_all: bool) -> None:
        self._keeps_all = keeps_all
        self._parts: list[tuple[Groups, NDArray[np.int64], NDArray[np.int32]]] = []

    def grow(self, num_groups: int) -> None:
        """Do nothing: groups without events have empty lists."""

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        times, steps = values[0].astype(np.int64), values[1].astype(np.int32) - 1
        rows = slice(None) if self._keeps_all else np.flatnonzero(steps >= 0)
        self._parts.append((all_in_one(groups, num_rows)[rows], times[rows], steps[rows]))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        owners = np.repeat(groups, np.diff(columns[0].offsets.to_numpy()))
        self._parts.append((owners, columns[0].flatten().to_numpy(), columns[1].flatten().to_numpy()))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        nothing = (np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int32))
        owners, times, steps = (np.concatenate(parts) for parts in zip(nothing, *self._parts, strict=True))
        order = np.lexsort((steps, times, owners))
        return GroupRuns.of(owners[order], groups).lists([pa.array(times), pa.array(steps)], order)


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of some groups, in order of their times within a group. Group g has events [bounds[g], bounds[g + 1])."""

    times: NDArray[np.int64]
    steps: NDArray[np.int32]
    bounds: NDArray[np.int64]
    rules: tuple[int, int, int, int]
    """Number of steps, length of a window, gap, modes."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def arguments(self, *out: NDArray[Any]) -> tuple[Any, ...]:
        """Return the arguments of a kernel that writes to `out`."""
        return read_only(self.times), read_only(self.steps), read_only(self.bounds), *self.rules, *out


class Funnel(AggregationFunction):
    """Aggregate over events in order."""

    written = "time, 'window', 'steps', condition, …[, 'setting', …]"
    parameters = (
        AggregateParameter(name="time", takes=frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})),
        AggregateParameter(name="first step that holds", takes=frozenset({TypeName.LONG})),
        AggregateParameter(name="window", takes=frozenset({TypeName.INT, TypeName.LONG}), is_constant=True),
        AggregateParameter(name="steps", takes=frozenset({TypeName.INT}), is_constant=True),
        AggregateParameter(name="settings", takes=frozenset({TypeName.STRING}), is_constant=True),
    )
    takes_durations = False

    def problem(self, types: Sequence[SqlType], constants: Sequence[Value]) -> str | None:
        window, _, text = constants
        if not isinstance(window, int) or window <= 0:
            return f"needs a window above 0 got={window!r}"
        try:
            settings = FunnelSettings.of(str(text))
        except ValueError as error:
            return str(error)
        if self.takes_durations and not settings.durations:
            return "needs a setting 'durationFunctions=AVG,MIN,…'"
        return "has no setting 'durationFunctions'" if settings.durations and not self.takes_durations else None

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return INT

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return StateField("times", pa.list_(pa.int64())), StateField("steps", pa.list_(pa.int32()))

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return EventState(keeps_all=bool(FunnelSettings.of(str(call.constants[2])).modes & _KEEP_ALL))

    def _events(self, call: AggregateCall, columns: Sequence[pa.Array]) -> _Events:
        window, num_steps, text = call.constants
        assert isinstance(window, int)
        assert isinstance(num_steps, int)
        settings = FunnelSettings.of(str(text))
        times, steps = (column.flatten().to_numpy() for column in columns)
        rules = (num_steps, window, settings.gap, settings.modes & ~_KEEP_ALL)
        return _Events(times, steps, offsets_of(np.diff(columns[0].offsets.to_numpy())), rules)

    def _furthest(self, events: _Events) -> NDArray[np.int32]:
        furthest = np.zeros(len(events), np.int32)
        funnel.furthest(*events.arguments(furthest))
        return furthest


class FunnelMaxStep(Funnel):
    """FUNNELMAXSTEP(time, window, n, step, … [, setting, …]): the most steps that follow one another in a window."""

    name = "funnelmaxstep"

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, self._furthest(self._events(call, columns)))


class FunnelMatchStep(Funnel):
    """FUNNELMATCHSTEP, with the same arguments: for each step 1 if the best window has it, else 0."""

    name = "funnelmatchstep"

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return SqlType(TypeName.INT, is_array=True)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        events = self._events(call, columns)
        num_steps = events.rules[0]
        account.current().expect(self.name.upper(), 5 * len(events) * num_steps)
        flags = (np.arange(num_steps) < self._furthest(events)[:, np.newaxis]).astype(np.int32)
        bounds = offsets_of(np.full(len(events), num_steps)).astype(np.int32)
        return Vector(call.result, pa.ListArray.from_arrays(pa.array(bounds), pa.array(flags.reshape(-1))))


class FunnelCompleteCount(Funnel):
    """FUNNELCOMPLETECOUNT, with the same arguments: how many times all steps follow one another."""

    name = "funnelcompletecount"

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        events = self._events(call, columns)
        counts = np.zeros(len(events), np.int32)
        funnel.completed(*events.arguments(counts))
        return Vector(call.result, counts)


class FunnelStepDurationStats(Funnel):
    """FUNNELSTEPDURATIONSTATS, with 'durationFunctions=AVG,MIN,…': for each step, a figure per function.

    A figure describes the times from the step to the next step, in the windows that have all steps; it is 0 for the
    last step. COUNT is 1 if the best window has the step, else 0."""

    name = "funnelstepdurationstats"
    takes_durations = True

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return SqlType(TypeName.DOUBLE, is_array=True)

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        events = self._events(call, columns)
        names = FunnelSettings.of(str(call.constants[2])).durations
        num_steps = events.rules[0]
        starts = int((events.steps == 0).sum())
        num_figures = len(events) * num_steps * len(names)
        account.current().expect(self.name.upper(), 8 * (2 * num_figures + starts * num_steps))
        reached, owners = np.zeros(len(events), np.int32), np.zeros(starts, np.int64)
        between = np.zeros((starts, num_steps - 1), np.int64)
        written = funnel.durations(*events.arguments(reached, owners, between))
        counts = np.bincount(owners[:written], minlength=len(events))
        figures = np.zeros((len(events), num_steps, len(names)))
        for place, name in enumerate(names):
            if name == "COUNT":
                figures[:, :, place] = np.arange(num_steps) < reached[:, np.newaxis]
            else:
                figures[:, :-1, place] = _figures(name, between[:written], owners[:written], counts)
        has_figures = counts > 0 if "COUNT" not in names else np.diff(events.bounds) > 0
        bounds = offsets_of(np.where(has_figures, num_steps * len(names), 0)).astype(np.int32)
        values = pa.array(figures[has_figures].reshape(-1))
        return Vector(call.result, pa.ListArray.from_arrays(pa.array(bounds), values))


def _figures(
    name: str, between: NDArray[np.int64], owners: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (groups, steps - 1): a mean or percentile of the durations of each group, 0 without durations. Owners
    ascend."""
    out = np.zeros((len(counts), between.shape[1]))
    groups = np.flatnonzero(counts)
    percent = _percent(name)
    starts = (np.cumsum(counts) - counts)[groups]
    for step in range(between.shape[1]) if len(groups) else ():
        account.current().expect("", 3 * between[:, step].nbytes)
        if percent is None:
            out[groups, step] = np.add.reduceat(between[:, step].astype(np.float64), starts) / counts[groups]
        else:
            ordered = between[np.lexsort((between[:, step], owners)), step]
            places = np.minimum((counts[groups] * (percent / 100.0)).astype(np.int64), counts[groups] - 1)
            out[groups, step] = ordered[starts + places]
    return out
