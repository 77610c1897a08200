"""Whether the operator gets on with its work, and where not. Pure but for the notes that are taken: `verdict` looks at
them and at a clock.

Four things are followed: that the event loop turns, that the API server answers for each place (a namespace that is
served, or None for all of them), that each pass ends, and that keys which are due are taken. The notes are plain
assignments by the event loop's thread; the watchdog's thread only reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from merlot_operator.workqueue import Key, WorkQueue

Place = str | None

UNREADY_S = 35.0
"""A task without progress for so long makes the operator unready, which Kubernetes learns within a minute."""
DEAD_S = 100.0
"""Whoever does not get on for so long ends, and is started again."""
UNHEARD_S = 600.0
"""An API server that refuses or is away for so long: new connections and credentials may mend it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`is_alive` follows from `is_ready`; `text` says what does not get on."""

    is_ready: bool
    is_alive: bool
    text: str


@dataclass(slots=True)
class Progress:
    """Notes, each with its time (monotonic seconds)."""

    queue: WorkQueue
    places: tuple[Place, ...]
    turned_at: float
    """When the event loop last came by."""
    tried: dict[Place, float] = field(default_factory=dict)
    """When a request about a place last ended, whatever came of it."""
    heard: dict[Place, float] = field(default_factory=dict)
    """When one last succeeded; a place is served from its first complete listing on."""
    left_out: dict[Place, str] = field(default_factory=dict)
    """Places that the operator has no rights in, and the API server's words."""
    left_to_others: dict[str, str] = field(default_factory=dict)
    """Namespaces that another operator serves, and which."""
    unwatched: tuple[str, ...] = ()
    """Kinds whose changes nobody tells, since they are not defined or not looked for yet."""
    passes: dict[Key, float] = field(default_factory=dict)
    """Since when a pass is under way, or was cut off and tried again."""
    is_ending: bool = False
    started_at: float = 0.0

    def __post_init__(self) -> None:
        self.started_at = self.turned_at

    def serves(self, namespace: str) -> bool:
        """Whether everything in the namespace is known, so that something may be decided there."""
        place = None if None in self.places else namespace
        return place in self.heard and place not in self.left_out

    def verdict(self, now: float) -> Verdict:
        """How it is."""
        stalls = [
            ("the event loop stands", now - self.turned_at, DEAD_S),
            ("keys are due and not taken", self.queue.overdue_s(now), DEAD_S),
            *((f"the pass over {key} does not end", now - since, DEAD_S) for key, since in list(self.passes.items())),
            *(stall for place in self.places for stall in self._stalls_of(place, now)),
        ]
        unheard = [place for place in self.places if place not in self.heard and place not in self.left_out]
        told = [f"{what} for {silence_s:.0f} s" for what, silence_s, _ in stalls if silence_s > UNREADY_S]
        told += ["the operator ends"] if self.is_ending else []
        told += [f"{_name(place)} is not listed yet" for place in unheard]
        told += (
            [f"no watch of {', '.join(self.unwatched)}: see that its definition is applied"] if self.unwatched else []
        )
        is_alive = all(silence_s < limit_s for _, silence_s, limit_s in stalls)
        left_out = [f"left out: {_name(place)}: {why}" for place, why in sorted(self.left_out.items(), key=str)]
        left_out += [f"left to others: {_name(one)}: {why}" for one, why in sorted(self.left_to_others.items())]
        return Verdict(not told, is_alive, "; ".join([*(told or ["ready"]), *left_out]))

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
