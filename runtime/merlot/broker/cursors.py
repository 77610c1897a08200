"""Answers that clients take page by page: kept in columns, with bounds on their number, their bytes and their time.

They are this broker's, in memory: a broker that ends takes them with it. Other brokers pass on what they are asked of
them (`http.cursor_owners`). What does not fit is refused, not left out; room comes when a client deletes an answer, or
its hour is over, or when a client that has less room wants some: then the one that has most loses its oldest answers.
Belongs to the event loop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import orjson

from merlot import memory
from merlot.broker.response import BrokerAnswer, ResultColumns, ResultRows
from merlot.clock import Clock
from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError, NotFoundError, UnavailableError

DEFAULT_ROWS: Final = 10_000
MOST_ROWS: Final = 1_000_000
"""Of a page."""
LIFE_MS: Final = 3_600_000
MOST_ANSWERS: Final = 1_000
MOST_BYTES: Final = 256_000_000
ROW_BYTES: Final = 1_000
"""What a row counts that is not in columns: there are few of those."""


class StoreFullError(UnavailableError):
    """No room for another answer."""

    code: ClassVar[int] = QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer."""

    answer: BrokerAnswer
    num_bytes: int
    since_ms: int
    client: str = ""

    @property
    def num_rows(self) -> int:
        """Of the whole answer."""
        return 0 if self.answer.result is None else self.answer.result.num_rows

    def page(self, offset: int, num_rows: int) -> bytes:
        """The answer with some of its rows."""
        result = self.answer.result
        assert result is not None
        columns = result.values(offset, min(offset + num_rows, self.num_rows)) if offset < self.num_rows else []
        rows = list(zip(*columns, strict=True))
        shown = replace(self.answer, result=ResultRows(result.column_names, result.column_types, rows))
        return self._described(shown.to_bytes(), {"offset": offset, "numRows": len(rows)})

    def head(self) -> bytes:
        """The answer without its rows."""
        return self._described(self.answer.without_rows(), {})

    def summary(self) -> dict[str, Any]:
        """What a list of answers tells of one."""
        _, host, port = self.answer.broker_id.split("_", 2) if self.answer.broker_id.count("_") > 1 else ("", "", "")
        return {
            "requestId": self.answer.request_id,
            "numRowsResultSet": self.num_rows,
            "submissionTimeMs": self.since_ms,
            "expirationTimeMs": self.since_ms + LIFE_MS,
            "brokerHost": host,
            "brokerPort": int(port) if port.isdecimal() else -1,
            "bytesWritten": self.num_bytes,
            "cursorResultWriteTimeMs": 0,
            "cursorFetchTimeMs": 0,
        }

    def _described(self, body: bytes, page: dict[str, Any]) -> bytes:
        return orjson.dumps({**orjson.loads(body), **page, **self.summary()})


class ResponseStore:
    """The answers of one broker, by request id."""

    def __init__(self, clock: Clock, *, most_bytes: int | None = None, most_answers: int = MOST_ANSWERS) -> None:
        """most_bytes: None: MOST_BYTES, or an eighth of the memory if that is less."""
        self._clock = clock
        self._most_bytes = min(MOST_BYTES, memory.total_bytes() // 8) if most_bytes is None else most_bytes
        self._most_answers = most_answers
        self._kept: dict[str, Kept] = {}
        self._num_bytes = 0

    def keep(self, answer: BrokerAnswer, client: str = "") -> Kept:
        """Keep an answer without errors for a client, an address; raises StoreFullError."""
        self._forget_old()
        kept = Kept(answer, _bytes_of(answer), self._clock.now_ms(), client)
        victims = self._victims_for(kept)
        if victims is None:
            raise StoreFullError(
                f"no room for another cursor answers={len(self._kept)} bytes={self._num_bytes} "
                f"wanted={kept.num_bytes} limit={self._most_bytes}: delete one (/responseStore), or ask for fewer rows"
            )
        for victim in victims:
            self._drop(victim)
        self._kept[answer.request_id] = kept
        self._num_bytes += kept.num_bytes
        return kept

    def _victims_for(self, wanted: Kept) -> list[Kept] | None:
        """Return which answers make room for one, None if it gets none."""
        staying = list(self._kept.values())
        victims: list[Kept] = []
        shares = Counter[str]()
        for kept in (*staying, wanted):
            shares[kept.client] += self._share(kept)
        while not self._fits(staying, wanted):
            heaviest = max(shares, key=shares.__getitem__)
            if heaviest == wanted.client:
                return None
            victim = next(kept for kept in staying if kept.client == heaviest)
            shares[heaviest] -= self._share(victim)
            staying.remove(victim)
            victims.append(victim)
        return victims

    def _fits(self, staying: list[Kept], wanted: Kept) -> bool:
        num_bytes = sum(kept.num_bytes for kept in staying)
        return len(staying) < self._most_answers and num_bytes + wanted.num_bytes <= self._most_bytes

    def _share(self, kept: Kept) -> int:
        """Count the bytes that an answer takes; at least its share of all places."""
        return max(kept.num_bytes, self._most_bytes // self._most_answers)

    def get(self, request_id: str) -> Kept:
        """Raises NotFoundError of what is not kept, or no more."""
        self._forget_old()
        kept = self._kept.get(request_id)
        if kept is None:
            raise NotFoundError(f"no such cursor, or its hour is over requestId={request_id:.200}")
        return kept

    def delete(self, request_id: str) -> None:
        """Raises NotFoundError."""
        self._drop(self.get(request_id))

    def all(self) -> list[Kept]:
        """The oldest first."""
        self._forget_old()
        return list(self._kept.values())

    def _forget_old(self) -> None:
        now_ms = self._clock.now_ms()
        for kept in [kept for kept in self._kept.values() if now_ms - kept.since_ms >= LIFE_MS]:
            self._drop(kept)

    def _drop(self, kept: Kept) -> None:
        del self._kept[kept.answer.request_id]
        self._num_bytes -= kept.num_bytes


def page_size(text: str | None) -> int:
    """`numRows` of a request; raises InvalidInputError."""
    return _whole("numRows", text, DEFAULT_ROWS, 1, MOST_ROWS)


def page_offset(text: str | None) -> int:
    """`offset` of a request; raises InvalidInputError."""
    return _whole("offset", text, 0, 0, 1 << 62)


def _whole(name: str, text: str | None, default: int, least: int, most: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidInputError(f"{name} must be a whole number from {least} to {most} got={text!r:.50}")
    return int(text)


def _bytes_of(answer: BrokerAnswer) -> int:
    result = answer.result
    if isinstance(result, ResultColumns):
        return ROW_BYTES + sum(int(column.nbytes) for column in result.table.columns)
    return ROW_BYTES * (1 + (0 if result is None else result.num_rows))
