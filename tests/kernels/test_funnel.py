"""Windows of events against Pinot's rules with a queue, a step at a time."""

import random
from collections import deque
from itertools import pairwise

import numpy as np
import pytest

from merlot.kernels import funnel

MODES = (0, funnel.DEDUPLICATED, funnel.IN_ORDER, funnel.INCREASING, funnel.DEDUPLICATED | funnel.INCREASING, 7)


def filled(queue, window, length, gap):
    while window and window[0][1] != 0:
        window.popleft()
    if not window:
        while queue and queue[0][1] != 0:
            queue.popleft()
        if not queue:
            return
        window.append(queue.popleft())
    end = window[0][0] + length
    while queue and queue[0][0] < end:
        if gap > 0 and queue[0][0] - window[-1][0] > gap:
            break
        window.append(queue.popleft())


def reached(window, num_steps, modes):
    most, previous = 0, -1
    for time, step in window:
        if modes & funnel.DEDUPLICATED and step == most - 1:
            return most
        if modes & funnel.IN_ORDER and step != most:
            return most
        if modes & funnel.INCREASING and previous == time:
            continue
        if most == step:
            most, previous = most + 1, time
        if most == num_steps:
            break
    return most


def windows(events, length, gap):
    """Each window; the next one begins after what `skip` is sent."""
    queue, window = deque(events), deque()
    while queue:
        filled(queue, window, length, gap)
        if not window:
            return
        until = yield list(window)
        window.popleft()
        while until is not None and window and window[0][0] < until:
            window.popleft()


def furthest(events, num_steps, length, gap, modes):
    most = 0
    for window in windows(events, length, gap):
        most = max(most, reached(window, num_steps, modes))
        if most == num_steps:
            break
    return most


def completed(events, num_steps, length, gap, modes):
    rounds, each, until = 0, windows(events, length, gap), None
    try:
        window = next(each)
        while True:
            until, most, previous = window[0][0], 0, -1
            for time, step in window:
                if modes & funnel.DEDUPLICATED and step == most - 1:
                    most = 0
                if modes & funnel.IN_ORDER and step != most:
                    most = 0
                if modes & funnel.INCREASING and previous == time:
                    continue
                previous = time
                most += most == step
                if most == num_steps:
                    rounds, most, until = rounds + 1, 0, time
            window = each.send(until)
    except StopIteration:
        return rounds


def durations(events, num_steps, length, gap, modes):
    found = []
    for window in windows(events, length, gap):
        if reached(window, num_steps, modes) == num_steps:
            times = []
            for time, step in window:
                if len(times) <= step:
                    times.append(time)
            found.append([after - before for before, after in pairwise(times)])
    return found


def groups_of(seed):
    chance = random.Random(seed)
    num_steps = chance.randrange(1, 5)
    span = chance.choice((5, 30, 200))
    least = chance.choice((-1, 0))
    groups = [
        sorted((chance.randrange(-5, span), chance.randrange(least, num_steps)) for _ in range(chance.randrange(25)))
        for _ in range(12)
    ]
    return groups, num_steps, chance.randrange(1, span + 3), chance.choice((0, 0, 1, span // 3))


@pytest.mark.parametrize("modes", MODES)
def test_windows_of_random_events_are_pinot_s(modes):
    for seed in range(60):
        groups, num_steps, length, gap = groups_of(seed)
        times = np.array([time for events in groups for time, _ in events], np.int64)
        steps = np.array([step for events in groups for _, step in events], np.int32)
        bounds = np.concatenate([[0], np.cumsum([len(events) for events in groups])])
        given = (times, steps, bounds, num_steps, length, gap, modes)
        for kernel, twin in ((funnel.furthest, furthest), (funnel.completed, completed)):
            out = np.zeros(len(groups), np.int32)
            kernel(*given, out)
            assert out.tolist() == [twin(events, num_steps, length, gap, modes) for events in groups]
        starts = int((steps == 0).sum())
        best, owners = np.zeros(len(groups), np.int32), np.zeros(starts, np.int64)
        between = np.zeros((starts, num_steps - 1), np.int64)
        written = funnel.durations(*given, best, owners, between)
        wanted = [durations(events, num_steps, length, gap, modes) for events in groups]
        assert between[:written].tolist() == [one for rows in wanted for one in rows]
        assert owners[:written].tolist() == [group for group, rows in enumerate(wanted) for _ in rows]


def test_times_at_the_ends_of_64_bits_are_far_apart():
    times = np.array([-(2**63), 2**63 - 1], np.int64)
    out = np.zeros(1, np.int32)
    funnel.furthest(times, np.array([0, 1], np.int32), np.array([0, 2]), 2, 2**63 - 1, 0, 0, out)
    assert out.tolist() == [1]
