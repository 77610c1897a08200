"""Seeded cases for as long as they are wanted, and the ways in which texts and bytes are spoiled.

`MERLOT_FUZZ_SECONDS` sets how long each test looks; without it, each tries a fixed number of cases. `MERLOT_SEED`
repeats a run.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests import budget
from tests.oracle.rounds import rounds

CASE_S = 60.0
"""How long one case may take: a hang, not slowness."""


class Loud(logging.Handler):
    """Keeps what somebody would have to look at: errors and tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.said.append(self.format(record))


def cases(name: str, *, quick: int, every: int) -> Iterator[random.Random]:
    """A generator of numbers for each case. Prints the seed first, so that a crash has told it."""
    seed = budget.seed()
    print(f"fuzz {name} MERLOT_SEED={seed}", flush=True)
    number = -1
    for number in rounds(f"MERLOT_FUZZ_{name.upper()}", quick=quick, every=every):
        yield random.Random(f"{seed}-{number + 1}")
    print(f"fuzz {name} MERLOT_SEED={seed}: {number + 1} cases", flush=True)


def spoiled_text(rng: random.Random, text: str, words: Sequence[str]) -> str:
    """Some pieces of a text deleted, doubled, moved, cut off, or replaced by others."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.choice((1, 1, 2, 5, 20)))
        piece = text[start:stop]
        match rng.randrange(7):
            case 0:
                text = text[:start] + text[stop:]
            case 1:
                text = text[:stop] + piece * rng.choice((1, 2, 50)) + text[stop:]
            case 2:
                text = text[:start] + rng.choice(words) + text[stop:]
            case 3:
                text = text[:start] + " " + rng.choice(words) + " " + text[start:]
            case 4:
                text = (
                    text[:start]
                    + chr(rng.choice((0, 9, 10, 34, 39, 92, 127, 233, 0x2028, 0x65E5, 0x1F600)))
                    + text[start:]
                )
            case 5:
                text = text[:start]
            case _:
                other = rng.randrange(len(text) + 1)
                text = text[:other] + piece + text[other:]
    return text


def spoiled_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, deleted, doubled or cut off."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((1, 1, 4, 16)))
        match rng.randrange(5):
            case 0:
                data = data[:start] + data[stop:]
            case 1:
                data = data[:stop] + data[start:stop] * rng.choice((1, 30)) + data[stop:]
            case 2:
                data = data[:start] + rng.randbytes(stop - start) + data[stop:]
            case 3:
                data = data[:start] + rng.choice((b"\r\n", b"\0", b"\xff", b":", b" ", b"-1", b"9" * 30)) + data[start:]
            case _:
                data = data[:start]
    return data


_ODD = (
    None,
    True,
    0,
    -1,
    1 << 31,
    1 << 63,
    -(1 << 63) - 1,
    10**30,
    1e308,
    0.5,
    "",
    "x",
    "9" * 40,
    "\0",
    "é",
    [],
    {},
    [[]],
    {"": 1},
)


def spoiled_json(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """A JSON value with some members replaced by values of other kinds, left out, or doubled."""
    if depth and rng.random() < 0.12:
        return rng.choice(_ODD)
    if isinstance(value, dict):
        made = {key: spoiled_json(rng, item, depth + 1) for key, item in value.items() if rng.random() > 0.04}
        if rng.random() < 0.1:
            made[rng.choice((*value, "odd"))] = rng.choice(_ODD)
        return made
    if isinstance(value, list):
        made_list = [spoiled_json(rng, item, depth + 1) for item in value]
        return made_list * 2 if rng.random() < 0.05 else made_list
    return value
