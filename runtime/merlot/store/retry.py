"""Retry an action: a pure schedule of waits, and the one loop that follows it."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from merlot.errors import UnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounded attempts with growing waits. Times in seconds."""

    attempts: int = 4
    first_wait: float = 0.2
    longest_wait: float = 5.0
    jitter: float = 0.25
    """Share of a wait that is random, so that many clients do not retry at the same moment."""

    def waits(self, rng: random.Random) -> Iterator[float]:
        """Yield the waits between the attempts; one fewer than the attempts."""
        for attempt in range(self.attempts - 1):
            wait = min(self.first_wait * 2**attempt, self.longest_wait)
            yield wait * (1 + self.jitter * (2 * rng.random() - 1))


class OutOfSpaceError(UnavailableError):
    """The local disk is full: trying again at once cannot help."""


def retrying(policy: RetryPolicy, action: Callable[[], T], *, deadline: float | None = None) -> T:
    """Run `action` until it returns. UnavailableError is retried, everything else propagates.

    `deadline`: `time.monotonic()` seconds after which no new attempt begins; None means that the policy alone
    decides."""
    waits = policy.waits(random.Random())
    while True:
        try:
            return action()
        except OutOfSpaceError:
            raise
        except UnavailableError:
            wait = next(waits, None)
            if wait is None or (deadline is not None and time.monotonic() + wait > deadline):
                raise
            time.sleep(wait)
