"""Requests and limits from what users write over what the chart has. Pure.

Kubernetes refuses a limit below its request: where a user wrote only one of them, the default of the other follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from merlot.spec.tenancy import Resources
from merlot_operator.kube.compare import quantity


def over(default: Resources, asked: Resources) -> Resources:
    """What is asked for, and the default where nothing is."""
    requests, limits = {**default.requests, **asked.requests}, {**default.limits, **asked.limits}
    for name in requests.keys() & limits.keys():
        if quantity(requests[name]) <= quantity(limits[name]):
            continue
        if name not in asked.limits:
            limits[name] = requests[name]
        elif name not in asked.requests:
            requests[name] = limits[name]
    return Resources(requests=requests, limits=limits, storage=asked.storage or default.storage)


def largest(asked: Sequence[Resources]) -> Resources:
    """The largest amount of each: of one table's limit and another's greater request, that too."""
    requests, limits = _largest_of([one.requests for one in asked]), _largest_of([one.limits for one in asked])
    if len(asked) > 1:
        limits = {name: max(limit, requests.get(name, limit), key=quantity) for name, limit in limits.items()}
    storage = [one.storage for one in asked if one.storage is not None]
    return Resources(requests=requests, limits=limits, storage=max(storage, key=quantity) if storage else None)


def _largest_of(amounts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    names = sorted({name for one in amounts for name in one})
    return {name: max((one[name] for one in amounts if name in one), key=quantity) for name in names}
