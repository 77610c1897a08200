"""Clients that query all the time and judge every answer: it is right, or marked as incomplete; all else is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from merlot.testing.patience import PATIENCE_S

OPTIONS = f"timeoutMs={1000 * PATIENCE_S / 2:.0f}"
"""Query options with a long timeout: a machine that pauses for some seconds does not fail a query. A query that is lost
is therefore noticed later."""

PAUSE_S = 0.03
"""Pause of a client between two queries, since a process that restarts on the same machine needs CPU time."""


@dataclass(slots=True)
class AnswerTally:
    """Counts of answers. `flagged` answers have exceptions, and fewer servers responded than were queried."""

    num_right: int = 0
    num_flagged: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    """The first messages of flagged answers."""

    def __str__(self) -> str:
        return f"right={self.num_right} flagged={self.num_flagged} codes={self.codes} wrong={len(self.wrong)}"

    def judge(self, sql: str, answer: Mapping[str, Any], expected: list[list[Any]]) -> None:
        """Count an answer."""
        exceptions = answer["exceptions"]
        queried, responded = answer["numServersQueried"], answer["numServersResponded"]
        rows = (answer.get("resultTable") or {}).get("rows")
        if not exceptions and queried == responded and rows == expected:
            self.num_right += 1
        elif exceptions and responded < queried:
            self.num_flagged += 1
            if len(self.examples) < 5:
                self.examples.append("; ".join(exception["message"] for exception in exceptions))
            for exception in exceptions:
                self.codes[exception["errorCode"]] = self.codes.get(exception["errorCode"], 0) + 1
        else:
            self.wrong.append(f"{sql} queried={queried} responded={responded} exceptions={exceptions} rows={rows}")


class QueryLoad:
    """Query load that runs while its block runs. cases: the right rows by SQL text."""

    def __init__(self, broker_url: str, cases: Mapping[str, list[list[Any]]], *, num_clients: int = 4) -> None:
        self.tally = AnswerTally()
        self._url = f"{broker_url}/query/sql"
        self._cases = list(cases.items())
        self._num_clients = num_clients
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(self._num_clients)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        for end in ends:
            if isinstance(end, Exception) and error is None:
                raise end

    async def answered(self, num_answers: int) -> None:
        """Wait for this many more answers."""
        goal = self.num_answers + num_answers
        while self.num_answers < goal:
            broken = next((task for task in self._tasks if task.done()), None)
            if broken is not None:
                broken.result()
            await asyncio.sleep(0.005)

    @property
    def num_answers(self) -> int:
        return self.tally.num_right + self.tally.num_flagged + len(self.tally.wrong)

    async def _ask(self, first: int) -> None:
        number = first
        while True:
            sql, expected = self._cases[number % len(self._cases)]
            number += 1
            async with self._session.post(self._url, json={"sql": sql, "queryOptions": OPTIONS}) as answer:
                assert answer.status == 200
                self.tally.judge(sql, await answer.json(), expected)
            await asyncio.sleep(PAUSE_S)
