"""Print a Table as a tree for people: its conditions, the pods that serve it with their segments, its batches. Pure."""

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
    """A line and the branches below it."""

    text: str
    below: list[Branch] = field(default_factory=list)

    def add(self, text: str) -> Branch:
        """Append a line below this one; return it."""
        branch = Branch(text)
        self.below.append(branch)
        return branch

    def lines(self) -> list[str]:
        """Return this line and those below it, with the signs that connect them."""
        return [self.text, *_connected(self.below)]


def _connected(branches: Sequence[Branch]) -> Iterable[str]:
    for branch in branches:
        is_last = branch is branches[-1]
        first, *rest = branch.lines()
        yield f"{'└─' if is_last else '├─'} {first}"
        yield from (f"{'   ' if is_last else '│  '}{line}" for line in rest)


def table_tree(body: Json, pods: Sequence[Json], answer: Json | None) -> Branch:
    """Return the tree. `pods` are the cluster's and the pool's; `answer` is the controller's about the table, None if
    it is silent."""
    status = body.get("status", {})
    counts = f"{status.get('segments', 0):,} segments, {status.get('totalDocs', 0):,} rows"
    root = Branch(f"Table {name_of(body)}: {counts}, {human_size(status.get('sizeBytes', 0))}")
    conditions = root.add("Conditions")
    for condition in status.get("conditions", ()):
        outdated = (
            "" if condition.get("observedGeneration") == body["metadata"].get("generation") else " (of an older spec)"
        )
        message = f": {condition['message']}" if condition.get("message") else ""
        conditions.add(
            f"{_sign(condition)} {condition['type']}={condition['status']} {condition['reason']}{message}{outdated}"
        )
    if not conditions.below:
        conditions.add("none yet: does the operator run?")
    if steps := status.get("plan"):
        plan = root.add("Under way")
        for step in steps:
            plan.add(str(step))
    _add_pods(root, pods, answer)
    _add_batches(root, status.get("batches", ()))
    return root


def _sign(condition: Json) -> str:
    """Return ✓ for good news, ✗ for bad news, … for a condition that is under way or unknown."""
    if condition["status"] == "Unknown" or (condition["type"] == "Progressing" and condition["status"] == "True"):
        return "…"
    return "✓" if (condition["status"] == "True") != (condition["type"] in UNWANTED) else "✗"


def _add_pods(root: Branch, pods: Sequence[Json], answer: Json | None) -> None:
    for component, title in (("controller", "Controllers"), ("broker", "Brokers"), ("server", "Servers")):
        members = [pod for pod in pods if labels_of(pod).get(COMPONENT) == component]
        branch = root.add(f"{title} ({sum(map(_is_ready, members))} of {len(members)} ready)")
        for pod in sorted(members, key=name_of):
            entry = branch.add(_pod_line(pod))
            if component != "controller":
                _add_reported(entry, pod, component, answer)
    if answer is None:
        root.add("The controller does not answer: segments per server are not known")
    elif answer.get("error"):
        root.add(f"✗ The controller cannot read the table: {answer['error']}")


def _add_reported(entry: Branch, pod: Json, component: str, answer: Json | None) -> None:
    """Add what the controller knows of the table on this pod."""
    entries = {} if answer is None else answer.get(f"{component}s", {})
    own = [item for instance, item in entries.items() if _is_of(instance, pod)]
    for item in own:
        if component == "broker":
            entry.text += f", config revision {item['revision'] or 'unknown'}"
            continue
        notes = [name for name in ("draining", "leaving") if item.get(name)]
        entry.text += f", {item['loaded']:,} of {item['assigned']:,} segments, config revision {item['revision']}"
        entry.text += f" ({', '.join(notes)})" if notes else ""
        for segment, message in list(item.get("errors", {}).items())[:MAX_ERRORS]:
            entry.add(f"✗ {segment}: {message}")
        if item.get("numErrors", 0) > MAX_ERRORS:
            entry.add(f"… {item['numErrors'] - MAX_ERRORS} more")


def _is_of(instance: str, pod: Json) -> bool:
    """Return True if the instance, `Server_NAME_PORT` or `Broker_ADDRESS_PORT`, runs in the pod."""
    host = instance.partition("_")[2].rpartition("_")[0]
    return host in (name_of(pod), pod.get("status", {}).get("podIP"))


def _pod_line(pod: Json) -> str:
    containers = pod.get("status", {}).get("containerStatuses", ())
    restarts = sum(container.get("restartCount", 0) for container in containers)
    waiting = [container["state"]["waiting"] for container in containers if "waiting" in container.get("state", {})]
    state = "ready" if _is_ready(pod) else str(pod.get("status", {}).get("phase", "Unknown")).lower()
    if "deletionTimestamp" in pod["metadata"]:
        state = "stopping"
    elif waiting:
        state = str(waiting[0].get("reason", state)) + (f": {text}" if (text := waiting[0].get("message")) else "")
    mark = "✓" if state == "ready" else "✗"
    return f"{mark} {name_of(pod)} {state}" + (f", {restarts} restarts" if restarts else "")


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _add_batches(root: Branch, batches: Sequence[Json]) -> None:
    if not batches:
        return
    branch = root.add("Batches")
    for batch in batches:
        counts = [f"{batch[key]:,} {text}" for key, text in _COUNTS if isinstance(batch.get(key), int)]
        line = ", ".join([f"{batch.get('name', '?')} {batch.get('state', 'Unknown')}", *counts])
        message = batch.get("message") or batch.get("error")
        branch.add(f"{line}: {message}" if message else line)


_COUNTS = (("rowsIn", "rows"), ("badRows", "bad"), ("segments", "segments"))
