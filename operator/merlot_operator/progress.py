"""Judge if the operator makes progress, and say where it does not. Pure but for the notes: `verdict` judges them at a
given time.

Four things are followed: that the event loop turns, that the API server answers for each place (a namespace that is
served, or None for all of them), that each pass ends, and that due keys are taken. The event loop's thread writes the
notes by plain assignments; the watchdog's thread only reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from merlot_operator.workqueue import QueueKey, WorkQueue

Place = str | None

UNREADY_S = 35.0
"""Seconds without progress after which the operator is unready; Kubernetes notices within a minute."""
DEAD_S = 100.0
"""Seconds without progress after which the process ends, and is started again."""
UNHEARD_S = 600.0
"""Seconds during which the API server may refuse or be away; then the process ends, since new connections and
credentials may help."""


@dataclass(frozen=True, slots=True)
class ProgressVerdict:
    """Judgement of the progress: ready implies alive. `text` says what makes no progress."""

    is_ready: bool
    is_alive: bool
    text: str


@dataclass(slots=True)
class OperatorProgress:
    """Notes about the operator's work, each with its time in monotonic seconds."""

    queue: WorkQueue
    places: tuple[Place, ...]
    turned_at: float
    """Time when the event loop last turned."""
    tried: dict[Place, float] = field(default_factory=dict)
    """Time when a request about a place last ended, with or without success."""
    heard: dict[Place, float] = field(default_factory=dict)
    """Time when a request about a place last succeeded; a place is served from its first complete listing on."""
    left_out: dict[Place, str] = field(default_factory=dict)
    """Places in which the operator has no rights, with the API server's message."""
    left_to_others: dict[str, str] = field(default_factory=dict)
    """Namespaces that another operator serves, with the name of that operator."""
    unwatched: tuple[str, ...] = ()
    """Kinds whose changes are not watched: they are not defined, or not looked for yet."""
    passes: dict[QueueKey, float] = field(default_factory=dict)
    """Start of each pass that is under way, or was cut off and is tried again."""
    is_ending: bool = False
    started_at: float = 0.0

    def __post_init__(self) -> None:
        self.started_at = self.turned_at

    def serves(self, namespace: str) -> bool:
        """Return True if everything in the namespace has been listed, so that decisions may be taken there."""
        place = None if None in self.places else namespace
        return place in self.heard and place not in self.left_out

    def verdict(self, now: float) -> ProgressVerdict:
        """Judge the notes at the time `now`."""
        stalls = [
            ("the event loop stands", now - self.turned_at, DEAD_S),
            ("keys are due and not taken", self.queue.overdue_s(now), DEAD_S),
            *((f"the pass over {key} does not end", now - since, DEAD_S) for key, since in list(self.passes.items())),
            *(stall for place in self.places for stall in self._stalls_of(place, now)),
        ]
        unheard = [place for place in self.places if place not in self.heard and place not in self.left_out]
        reports = [f"{what} for {silence_s:.0f} s" for what, silence_s, _ in stalls if silence_s > UNREADY_S]
        reports += ["the operator ends"] if self.is_ending else []
        reports += [f"{_name(place)} is not listed yet" for place in unheard]
        reports += (
            [f"no watch of {', '.join(self.unwatched)}: see that its definition is applied"] if self.unwatched else []
        )
        is_alive = all(silence_s < limit_s for _, silence_s, limit_s in stalls)
        left_out = [f"left out: {_name(place)}: {why}" for place, why in sorted(self.left_out.items(), key=str)]
        left_out += [
            f"left to others: {_name(namespace)}: {why}" for namespace, why in sorted(self.left_to_others.items())
        ]
        return ProgressVerdict(not reports, is_alive, "; ".join([*(reports or ["ready"]), *left_out]))

    def _stalls_of(self, place: Place, now: float) -> list[tuple[str, float, float]]:
        name = _name(place)
        silence_s = now - self.heard.get(place, self.started_at)
        stalls = [(f"no request about {name} ends", now - self.tried.get(place, self.started_at), DEAD_S)]
        if place not in self.left_out:
            stalls.append((f"the API server does not answer about {name}", silence_s, UNHEARD_S))
        elif len(self.left_out) == len(self.places):
            stalls.append((f"nothing is served, {name} neither", silence_s, DEAD_S))
        return stalls


def _name(place: Place) -> str:
    return "any namespace" if place is None else f"namespace {place}"
