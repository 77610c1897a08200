"""State of pods: ready or not, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from merlot_operator.kube.events import ms_of
from merlot_operator.kube.kinds import INPUTS, Object, annotations_of, is_deleting, name_of

_BROKEN = {
    "ErrImagePull": ("ImageNotFound", "see that the image exists and that the node may pull it"),
    "ImagePullBackOff": ("ImageNotFound", "see that the image exists and that the node may pull it"),
    "ErrImageNeverPull": ("ImageNotFound", "load the image on the node, or let it be pulled"),
    "InvalidImageName": ("ImageNotFound", "correct the image's name"),
    "CreateContainerConfigError": ("ConfigMissing", "create the Secret or ConfigMap that it names"),
    "CreateContainerError": ("ContainerNotCreated", "see `kubectl describe pod`"),
    "CrashLoopBackOff": ("Crashing", "see `kubectl logs --previous`"),
    "RunContainerError": ("ContainerNotStarted", "see `kubectl describe pod`"),
}
RESTARTS_UNTIL_CRASHING = 3
STUCK_MS = 30_000
"""Milliseconds after which a deleted pod is stuck, from the end of its grace period (its deletionTimestamp) on. Usually
it is gone within a second or two."""
OVERDUE_MS = 900_000
"""Milliseconds after which a pod that is not ready is a problem: a server that starts on an empty disk may load for a
while."""


@dataclass(frozen=True, slots=True)
class PodProblem:
    """Problem that keeps a pod from running: a reason in one word, and a message with the next step."""

    pod: str
    reason: str
    message: str


def is_ready(pod: Object) -> bool:
    """Return True if Kubernetes sends the pod requests, and will go on to do so."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return not is_deleting(pod) and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def may_run(pod: Object, container: str) -> bool:
    """Return True if a container of the pod may be running: False only if Kubernetes says that it waits or has
    ended."""
    status = pod.get("status", {})
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or () if entry["name"] == container]
    if states:
        return not any("waiting" in state or "terminated" in state for state in states)
    return status.get("phase") not in ("Pending", "Succeeded", "Failed")


def num_ready(pods: Iterable[Object]) -> int:
    """Return the number of ready pods."""
    return sum(map(is_ready, pods))


def inputs_of(pod: Object) -> str:
    """Return the hash of the choices that the pod was started with."""
    return annotations_of(pod).get(INPUTS, "")


def problems(pods: Iterable[Object], *, now_ms: int | None = None) -> list[PodProblem]:
    """Return the first problem of each pod that has one. Without `now_ms`, problems that only time shows are left
    out."""
    return [problem for pod in pods if (problem := next(_problems(pod, now_ms), None)) is not None]


def is_stuck(pod: Object, now_ms: int) -> bool:
    """Return True if the pod should have ended long ago: its node may be gone, and nobody makes another pod of its
    name."""
    return is_deleting(pod) and now_ms > ms_of(pod["metadata"]["deletionTimestamp"]) + STUCK_MS


def _problems(pod: Object, now_ms: int | None) -> Iterator[PodProblem]:
    name, status = name_of(pod), pod.get("status", {})
    if is_deleting(pod):
        if now_ms is not None and is_stuck(pod, now_ms):
            node, since = pod.get("spec", {}).get("nodeName", "unknown"), pod["metadata"]["deletionTimestamp"]
            text = f"pod {name} should have ended at {since} and has not: see that its node {node} runs"
            yield PodProblem(name, "PodStuck", f"{text}, or, if it is gone for good, `kubectl delete node {node}`")
        return
    if is_ready(pod):
        return
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            text = condition.get("message", "no node takes it")
            yield PodProblem(name, "Unschedulable", f"pod {name} has no node: {text}; give it less, or add nodes")
    for container in status.get("containerStatuses") or ():
        yield from _container_problems(name, container)
    if now_ms is not None:
        yield from _overdue(pod, now_ms)


def _overdue(pod: Object, now_ms: int) -> Iterator[PodProblem]:
    """Yield a problem if the pod has not been ready for long, though nothing says why."""
    name, conditions = name_of(pod), pod.get("status", {}).get("conditions") or ()
    for condition in conditions:
        since = condition.get("lastTransitionTime")
        is_unready = condition["type"] == "Ready" and condition["status"] != "True"
        if is_unready and since is not None and now_ms > ms_of(since) + OVERDUE_MS:
            text = f"pod {name} is not ready since {since}: {condition.get('message') or 'its probes fail'}"
            yield PodProblem(name, "NotReady", f"{text}; see `kubectl describe pod {name}` and its log")


def _container_problems(pod: str, container: dict[str, Any]) -> Iterator[PodProblem]:
    waiting = container.get("state", {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _BROKEN:
        kind, step = _BROKEN[reason]
        detail = waiting.get("message") or _termination_message(container) or reason
        yield PodProblem(pod, kind, f"pod {pod}: {detail[:500]}; {step}")
    elif container.get("restartCount", 0) >= RESTARTS_UNTIL_CRASHING:
        last = _termination_message(container) or "its container ends again and again"
        yield PodProblem(pod, "Crashing", f"pod {pod}: {last[:500]}; see `kubectl logs --previous {pod}`")


def _termination_message(container: dict[str, Any]) -> str:
    """Return the termination message of the container's last end, or how it ended."""
    ended = container.get("lastState", {}).get("terminated") or {}
    lines = (ended.get("message") or "").strip().splitlines()
    if lines:
        return str(lines[-1])
    return f"ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})" if "exitCode" in ended else ""
