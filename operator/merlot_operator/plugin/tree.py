"""A Table as a tree for people: its conditions, the pods that serve it with their segments, its batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merlot_operator.kube.kinds import COMPONENT, labels_of, name_of
from merlot_operator.status.conditions import human_size

Json = Mapping[str, Any]
MAX_ERRORS = 5
UNWANTED = frozenset({"Progressing", "Degraded", "RestartPending"})
"""Conditions that are good news when they do not hold."""


@dataclass(slots=True)
class Branch:
    """A line and what hangs from it."""

    text: str
    below: list[Branch] = field(default_factory=list)

    def add(self, text: str) -> Branch:
        """A new line below this one."""
        branch = Branch(text)
        self.below.append(branch)
        return branch

    def lines(self) -> list[str]:
        """This line and those below it, with what connects them."""
        return [self.text, *_connected(self.below)]


def _connected(branches: Sequence[Branch]) -> Iterable[str]:
    for branch in branches:
        is_last = branch is branches[-1]
        first, *rest = branch.lines()
        yield f"{'└─' if is_last else '├─'} {first}"
        yield from (f"{'   ' if is_last else '│  '}{line}" for line in rest)


def table_tree(body: Json, pods: Sequence[Json], known: Json | None) -> Branch:
    """`pods` are the cluster's and the pool's; `known` is the controller's word on the table, None if it is silent."""
    status = body.get("status", {})
    counts = f"{status.get('segments', 0):,} segments, {status.get('totalDocs', 0):,} rows"
    root = Branch(f"Table {name_of(body)}: {counts}, {human_size(status.get('sizeBytes', 0))}")
    conditions = root.add("Conditions")
    for one in status.get("conditions", ()):
        outdated = "" if one.get("observedGeneration") == body["metadata"].get("generation") else " (of an older spec)"
        message = f": {one['message']}" if one.get("message") else ""
        conditions.add(f"{_sign(one)} {one['type']}={one['status']} {one['reason']}{message}{outdated}")
    if not conditions.below:
        conditions.add("none yet: does the operator run?")
    if steps := status.get("plan"):
        plan = root.add("Under way")
        for step in steps:
            plan.add(str(step))
    _add_pods(root, pods, known)
    _add_batches(root, status.get("batches", ()))
    return root


def _sign(condition: Json) -> str:
    """✓ for good news, ✗ for bad, … for what is under way or unknown."""
    if condition["status"] == "Unknown" or (condition["type"] == "Progressing" and condition["status"] == "True"):
        return "…"
    return "✓" if (condition["status"] == "True") != (condition["type"] in UNWANTED) else "✗"


def _add_pods(root: Branch, pods: Sequence[Json], known: Json | None) -> None:
    for component, title in (("controller", "Controllers"), ("broker", "Brokers"), ("server", "Servers")):
        found = [pod for pod in pods if labels_of(pod).get(COMPONENT) == component]
        branch = root.add(f"{title} ({sum(map(_is_ready, found))} of {len(found)} ready)")
        for pod in sorted(found, key=name_of):
            entry = branch.add(_pod_line(pod))
            if component != "controller":
                _add_knowledge(entry, pod, component, known)
    if known is None:
        root.add("The controller does not answer: segments per server are not known")


def _add_knowledge(entry: Branch, pod: Json, component: str, known: Json | None) -> None:
    """What the controller knows of this pod and the table."""
    entries = {} if known is None else known[f"{component}s"]
    own = [one for instance, one in entries.items() if _is_of(instance, pod)]
    for one in own:
        if component == "broker":
            entry.text += f", config revision {one['revision'] or 'unknown'}"
            continue
        notes = [name for name in ("draining", "leaving") if one.get(name)]
        entry.text += f", {one['loaded']:,} of {one['assigned']:,} segments, config revision {one['revision']}"
        entry.text += f" ({', '.join(notes)})" if notes else ""
        for segment, message in list(one.get("errors", {}).items())[:MAX_ERRORS]:
            entry.add(f"✗ {segment}: {message}")
        if one.get("numErrors", 0) > MAX_ERRORS:
            entry.add(f"… {one['numErrors'] - MAX_ERRORS} more")


def _is_of(instance: str, pod: Json) -> bool:
    """Instances are `Server_NAME_PORT` or `Broker_ADDRESS_PORT`."""
    host = instance.partition("_")[2].rpartition("_")[0]
    return host in (name_of(pod), pod.get("status", {}).get("podIP"))


def _pod_line(pod: Json) -> str:
    containers = pod.get("status", {}).get("containerStatuses", ())
    restarts = sum(one.get("restartCount", 0) for one in containers)
    waiting = [one["state"]["waiting"] for one in containers if "waiting" in one.get("state", {})]
    state = "ready" if _is_ready(pod) else str(pod.get("status", {}).get("phase", "Unknown")).lower()
    if "deletionTimestamp" in pod["metadata"]:
        state = "stopping"
    elif waiting:
        state = str(waiting[0].get("reason", state)) + (f": {text}" if (text := waiting[0].get("message")) else "")
    mark = "✓" if state == "ready" else "✗"
    return f"{mark} {name_of(pod)} {state}" + (f", {restarts} restarts" if restarts else "")


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _add_batches(root: Branch, batches: Sequence[Json]) -> None:
    if not batches:
        return
    branch = root.add("Batches")
    for one in batches:
        counts = [f"{one[key]:,} {text}" for key, text in _COUNTS if isinstance(one.get(key), int)]
        line = ", ".join([f"{one.get('name', '?')} {one.get('state', 'Unknown')}", *counts])
        message = one.get("message") or one.get("error")
        branch.add(f"{line}: {message}" if message else line)


_COUNTS = (("rowsIn", "rows"), ("badRows", "bad"), ("segments", "segments"))
