"""Windows of ordered events, by Pinot's rules: how many consecutive steps each group reaches within some time.

The events of group g are `bounds[g]` to `bounds[g + 1]`, in order of `times` (i64), then of `steps` (i32, from 0, or -1
for an event that is no step). A window begins at an event of step 0. It has the events less than `length` after that
event, each at most `gap` after the event before it, unless `gap` is 0. The next window begins at the next event of step
0. No window follows one that has reached the last event.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

DEDUPLICATED: Final = 1
"""Mode: a repeated step ends its chain."""
IN_ORDER: Final = 2
"""Mode: any event other than the next step ends the chain."""
INCREASING: Final = 4
"""Mode: events at the same time as the step before do not count."""

Times = NDArray[np.int64]
Steps = NDArray[np.int32]


@kernel
def _since(times: Times, first: Any, last: Any) -> Any:
    """Return the time between two events as u64: a difference may not fit 63 bits."""
    return np.uint64(times[last]) - np.uint64(times[first])


@kernel
def _window(times: Times, steps: Steps, head: Any, tail: Any, stop: Any, length: Any, gap: Any) -> Any:
    """Return the first event and the end of the next window; both are equal if there is none.

    The last window ended at `tail` and began before `head`."""
    while head < tail and steps[head] != 0:
        head += 1
    if head == tail:
        while tail < stop and steps[tail] != 0:
            tail += 1
        head = tail
        if tail == stop:
            return head, tail
        tail += 1
    while tail < stop and _since(times, head, tail) < np.uint64(length):
        if gap > 0 and _since(times, tail - 1, tail) > np.uint64(gap):
            break
        tail += 1
    return head, tail


@kernel
def _reached(times: Times, steps: Steps, head: Any, tail: Any, num_steps: Any, modes: Any) -> Any:
    """Return the number of steps that a window has, from its first event on."""
    reached = 0
    previous = np.int64(-1)
    for event in range(head, tail):
        step = steps[event]
        if modes & DEDUPLICATED and step == reached - 1:
            break
        if modes & IN_ORDER and step != reached:
            break
        if modes & INCREASING and times[event] == previous:
            continue
        if step == reached:
            reached += 1
            previous = times[event]
            if reached == num_steps:
                break
    return reached


@kernel
def furthest(
    times: Times, steps: Steps, bounds: Times, num_steps: Any, length: Any, gap: Any, modes: Any, out: Steps
) -> None:
    """Write the number of steps of each group's best window."""
    for group in range(out.shape[0]):
        head = bounds[group]
        tail = head
        stop = bounds[group + 1]
        best = 0
        while tail < stop and best < num_steps:
            head, tail = _window(times, steps, head, tail, stop, length, gap)
            if head == tail:
                break
            best = max(best, _reached(times, steps, head, tail, num_steps, modes))
            head += 1
        out[group] = best


@kernel
def completed(
    times: Times, steps: Steps, bounds: Times, num_steps: Any, length: Any, gap: Any, modes: Any, out: Steps
) -> None:
    """Write how often each group completes all steps, one after another. The window after a completed round begins no
    earlier than the round's last step."""
    for group in range(out.shape[0]):
        head = bounds[group]
        tail = head
        stop = bounds[group + 1]
        rounds = 0
        while tail < stop:
            head, tail = _window(times, steps, head, tail, stop, length, gap)
            if head == tail:
                break
            start = times[head]
            reached = 0
            previous = np.int64(-1)
            for event in range(head, tail):
                step = steps[event]
                if modes & DEDUPLICATED and step == reached - 1:
                    reached = 0
                if modes & IN_ORDER and step != reached:
                    reached = 0
                if modes & INCREASING and times[event] == previous:
                    continue
                previous = times[event]
                if step == reached:
                    reached += 1
                if reached == num_steps:
                    rounds += 1
                    reached = 0
                    start = times[event]
            head += 1
            while head < tail and times[head] < start:
                head += 1
        out[group] = rounds


@kernel
def durations(
    times: Times,
    steps: Steps,
    bounds: Times,
    num_steps: Any,
    length: Any,
    gap: Any,
    modes: Any,
    reached_by: Steps,
    owners: Times,
    out: Times,
) -> Any:
    """Write the durations from each step to the next, a row of `out` for every window that has all steps.

    owners: each row's group. reached_by: the number of steps of each group's best window. `out` has room for a row for
    each event of step 0. Returns the number of rows. As in Pinot, the first event of the next step or of any later step
    counts as the next step."""
    written = 0
    for group in range(reached_by.shape[0]):
        head = bounds[group]
        tail = head
        stop = bounds[group + 1]
        best = 0
        while tail < stop:
            head, tail = _window(times, steps, head, tail, stop, length, gap)
            if head == tail:
                break
            reached = _reached(times, steps, head, tail, num_steps, modes)
            best = max(best, reached)
            if reached == num_steps:
                next_step = 0
                last = head
                for event in range(head, tail):
                    if next_step <= steps[event] and next_step < num_steps:
                        if next_step > 0:
                            out[written, next_step - 1] = times[event] - times[last]
                        last = event
                        next_step += 1
                owners[written] = group
                written += 1
            head += 1
        reached_by[group] = best
    return written
