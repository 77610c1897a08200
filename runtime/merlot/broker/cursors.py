"""Keep answers that clients read page by page, within bounds of number, bytes and time.

Answers are kept in columns, in this broker's memory: when the broker ends, they are gone. Other brokers pass requests
for them on (`http.cursor_owners`). An answer that does not fit is refused. Room comes back when a client deletes an
answer, or when an answer's hour is over. A new answer may also displace the oldest answers of the client that holds
most, unless that client asked for it. Belongs to the event loop.
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
from merlot.security.access import ANONYMOUS

DEFAULT_ROWS: Final = 10_000
MOST_ROWS: Final = 1_000_000
"""Most rows of a page."""
LIFE_MS: Final = 3_600_000
MOST_ANSWERS: Final = 1_000
MOST_BYTES: Final = 256_000_000
ROW_BYTES: Final = 1_000
"""Bytes that a row counts for if it is not in columns; there are few such rows."""


class StoreFullError(UnavailableError):
    """Raised if there is no room for another answer."""

    code: ClassVar[int] = QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer that is kept."""

    answer: BrokerAnswer
    num_bytes: int
    since_ms: int
    client: str = ""
    owner: str = ANONYMOUS.name
    """Name of who asked."""

    @property
    def num_rows(self) -> int:
        """Rows of the whole answer."""
        return 0 if self.answer.result is None else self.answer.result.num_rows

    def page(self, offset: int, num_rows: int) -> bytes:
        """Return the answer with `num_rows` of its rows, from `offset` on."""
        result = self.answer.result
        assert result is not None
        columns = result.values(offset, min(offset + num_rows, self.num_rows)) if offset < self.num_rows else []
        rows = list(zip(*columns, strict=True))
        shown = replace(self.answer, result=ResultRows(result.column_names, result.column_types, rows))
        return self._described(shown.to_bytes(), {"offset": offset, "numRows": len(rows)})

    def head(self) -> bytes:
        """Return the answer without its rows."""
        return self._described(self.answer.without_rows(), {})

    def summary(self) -> dict[str, Any]:
        """Return the answer's entry in a list of answers."""
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
    """The kept answers of a broker, by request id."""

    def __init__(self, clock: Clock, *, most_bytes: int | None = None, most_answers: int = MOST_ANSWERS) -> None:
        """Create an empty store. If `most_bytes` is None, it is MOST_BYTES, or an eighth of the memory if that is
        less."""
        self._clock = clock
        self._most_bytes = min(MOST_BYTES, memory.total_bytes() // 8) if most_bytes is None else most_bytes
        self._most_answers = most_answers
        self._kept: dict[str, StoredAnswer] = {}
        self._num_bytes = 0

    def keep(self, answer: BrokerAnswer, client: str = "", owner: str = ANONYMOUS.name) -> StoredAnswer:
        """Keep an answer without errors for a client, named by its address, and for `owner`, who asked. Raise
        StoreFullError if there is no room."""
        self._forget_old()
        stored = StoredAnswer(answer, _bytes_of(answer), self._clock.now_ms(), client, owner)
        victims = self._victims_for(stored)
        if victims is None:
            raise StoreFullError(
                f"no room for another cursor answers={len(self._kept)} bytes={self._num_bytes} "
                f"wanted={stored.num_bytes} limit={self._most_bytes}: "
                "delete one (/responseStore), or ask for fewer rows"
            )
        for victim in victims:
            self._drop(victim)
        self._kept[answer.request_id] = stored
        self._num_bytes += stored.num_bytes
        return stored

    def _victims_for(self, wanted: StoredAnswer) -> list[StoredAnswer] | None:
        """Return the answers to drop so that `wanted` fits; None if it gets no room."""
        staying = list(self._kept.values())
        victims: list[StoredAnswer] = []
        shares = Counter[str]()
        for stored in (*staying, wanted):
            shares[stored.client] += self._share(stored)
        while not self._fits(staying, wanted):
            heaviest = max(shares, key=shares.__getitem__)
            if heaviest == wanted.client:
                return None
            victim = next(stored for stored in staying if stored.client == heaviest)
            shares[heaviest] -= self._share(victim)
            staying.remove(victim)
            victims.append(victim)
        return victims

    def _fits(self, staying: list[StoredAnswer], wanted: StoredAnswer) -> bool:
        num_bytes = sum(stored.num_bytes for stored in staying)
        return len(staying) < self._most_answers and num_bytes + wanted.num_bytes <= self._most_bytes

    def _share(self, stored: StoredAnswer) -> int:
        """Return the bytes that an answer counts for: its own, but at least an equal share of the store."""
        return max(stored.num_bytes, self._most_bytes // self._most_answers)

    def get(self, request_id: str, asker: str | None = None) -> StoredAnswer:
        """Return a kept answer. Raise NotFoundError if there is none, its hour is over, or it is not the asker's; None
        asks for anybody's."""
        self._forget_old()
        stored = self._kept.get(request_id)
        if stored is None or asker not in (None, stored.owner):
            raise NotFoundError(f"no such cursor, or its hour is over requestId={request_id:.200}")
        return stored

    def delete(self, request_id: str, asker: str | None = None) -> None:
        """Drop a kept answer. Raise NotFoundError as `get` does."""
        self._drop(self.get(request_id, asker))

    def all(self, asker: str | None = None) -> list[StoredAnswer]:
        """Return the kept answers, the oldest first: all, or the asker's."""
        self._forget_old()
        return [stored for stored in self._kept.values() if asker in (None, stored.owner)]

    def _forget_old(self) -> None:
        now_ms = self._clock.now_ms()
        for stored in [stored for stored in self._kept.values() if now_ms - stored.since_ms >= LIFE_MS]:
            self._drop(stored)

    def _drop(self, stored: StoredAnswer) -> None:
        del self._kept[stored.answer.request_id]
        self._num_bytes -= stored.num_bytes


def page_size(text: str | None) -> int:
    """Read `numRows` of a request. Raise InvalidInputError if it is not a number of rows."""
    return _whole("numRows", text, DEFAULT_ROWS, 1, MOST_ROWS)


def page_offset(text: str | None) -> int:
    """Read `offset` of a request. Raise InvalidInputError if it is not an offset."""
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
