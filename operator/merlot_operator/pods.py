"""What pods tell: ready or not, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from merlot_operator.kinds import INPUTS, Object, annotations_of, is_deleting, name_of

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


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not run: a reason in one word, and a message with the next step."""

    pod: str
    reason: str
    message: str


def is_ready(pod: Object) -> bool:
    """Whether Kubernetes sends it requests, and will go on."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return not is_deleting(pod) and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def may_run(pod: Object, container: str) -> bool:
    """Whether a container of it may be at work: False only if Kubernetes says that it waits or has ended."""
    status = pod.get("status", {})
    states = [one.get("state") or {} for one in status.get("containerStatuses") or () if one["name"] == container]
    if states:
        return not any("waiting" in state or "terminated" in state for state in states)
    return status.get("phase") not in ("Pending", "Succeeded", "Failed")


def num_ready(pods: Iterable[Object]) -> int:
    """How many are ready."""
    return sum(map(is_ready, pods))


def inputs_of(pod: Object) -> str:
    """Hash of the choices that it was started with."""
    return annotations_of(pod).get(INPUTS, "")


def problems(pods: Iterable[Object]) -> list[Problem]:
    """The first problem of each pod that has one."""
    return [found for pod in pods if (found := next(_problems(pod), None)) is not None]


def _problems(pod: Object) -> Iterator[Problem]:
    name, status = name_of(pod), pod.get("status", {})
    if is_deleting(pod) or is_ready(pod):
        return
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            text = condition.get("message", "no node takes it")
            yield Problem(name, "Unschedulable", f"pod {name} has no node: {text}; give it less, or add nodes")
    for container in status.get("containerStatuses") or ():
        yield from _container_problems(name, container)


def _container_problems(pod: str, container: dict[str, Any]) -> Iterator[Problem]:
    waiting = container.get("state", {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in _BROKEN:
        kind, step = _BROKEN[reason]
        detail = waiting.get("message") or _last_words(container) or reason
        yield Problem(pod, kind, f"pod {pod}: {detail[:500]}; {step}")
    elif container.get("restartCount", 0) >= RESTARTS_UNTIL_CRASHING:
        last = _last_words(container) or "its container ends again and again"
        yield Problem(pod, "Crashing", f"pod {pod}: {last[:500]}; see `kubectl logs --previous {pod}`")


def _last_words(container: dict[str, Any]) -> str:
    """What the container that ended before left as its message, or how it ended."""
    ended = container.get("lastState", {}).get("terminated") or {}
    lines = (ended.get("message") or "").strip().splitlines()
    if lines:
        return str(lines[-1])
    return f"ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})" if "exitCode" in ended else ""
