"""Problem of a stream for an error, as conditions and lists show it."""

from __future__ import annotations

from merlot.cluster.consuming.progress import StreamProblem
from merlot.errors import UnavailableError
from merlot.server.realtime.merger_retry import PoisonRowError
from merlot.server.realtime.secrets import SecretMissingError
from merlot.streams.folders import PlaceNotAllowedError
from merlot.streams.protocol import OffsetOutOfRangeError, StreamAccessError, TopicGoneError


def problem_of(error: Exception) -> StreamProblem:
    """Return the problem that an error of a stream's client, its Secret or its messages stands for."""
    match error:
        case StreamAccessError():
            return StreamProblem.REFUSED
        case PlaceNotAllowedError():
            return StreamProblem.NOT_ALLOWED
        case SecretMissingError():
            return StreamProblem.NO_SECRET
        case TopicGoneError():
            return StreamProblem.GONE
        case OffsetOutOfRangeError():
            return StreamProblem.OUT_OF_RANGE
        case PoisonRowError():
            return StreamProblem.MERGER_FAILED
        case UnavailableError():
            return StreamProblem.UNREACHABLE
        case _:
            return StreamProblem.OTHER
