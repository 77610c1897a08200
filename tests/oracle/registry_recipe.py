"""How a function is asked at random, and what DuckDB is asked in its place.

What an argument may be is a letter: w a small whole number, I any INT, L any LONG, n a divisor, r a double that adds
up, R any double, y one of which the last digits are not known, s a text, S one that is not empty, x bytes, m
milliseconds, T a TIMESTAMP, b a condition, a a list of numbers, e one of texts, A and E lists that are not empty, u a
URL, p an address, c a text with commas; or a tuple of constants, written the same in both dialects. Results have W
and t, too: any whole number, and an instant.
"""

from __future__ import annotations

from dataclasses import dataclass

Argument = str | tuple[str, ...]


@dataclass(frozen=True)
class Recipe:
    """A call and the same in DuckDB, where `{0}` is the first argument. `gives` is a letter, as of arguments."""

    arguments: tuple[Argument, ...]
    theirs: str
    gives: str
    names: tuple[str, ...] = ()
    """By which it may be called, if not by all that it has."""
    ours: str = ""
    """Where it is not written as a call."""
    needs_nulls: bool = False
    """Whether it sees nulls that with null handling off no other function sees."""


def recipe(arguments: str, theirs: str, gives: str, **constants: tuple[str, ...]) -> Recipe:
    """Arguments by letters; a longer word is the name of constants."""
    found = tuple(constants.get(word, word) for word in arguments.split())
    return Recipe(found, theirs, gives)
