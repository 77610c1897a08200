"""Requests, limits and storage of pods: the user's values override the chart's defaults. Pure.

Kubernetes refuses a limit below its request. If a value of the user conflicts with a default in this way, the default
is set to the user's value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from merlot.spec.tenancy import Resources
from merlot_operator.kube.compare import quantity


def over(default: Resources, asked: Resources) -> Resources:
    """Return `asked`, with the default for everything that it leaves out. A default limit below the request is raised
    to it, and a default request above the limit is lowered to it."""
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
    """Return the largest amount of each resource that any table asks for. A limit is raised to the request if another
    table requests more than the limit."""
    requests, limits = _largest_of([table.requests for table in asked]), _largest_of([table.limits for table in asked])
    if len(asked) > 1:
        limits = {name: max(limit, requests.get(name, limit), key=quantity) for name, limit in limits.items()}
    storage = [table.storage for table in asked if table.storage is not None]
    return Resources(requests=requests, limits=limits, storage=max(storage, key=quantity) if storage else None)


def _largest_of(amounts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    names = sorted({name for amount in amounts for name in amount})
    return {name: max((amount[name] for amount in amounts if name in amount), key=quantity) for name in names}
