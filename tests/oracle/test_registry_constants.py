"""A call of constants is worked out where a query is planned, and other queries wait: none takes long.

`MERLOT_CONSTANTS` sets how many of the calls are planned (0: all), `MERLOT_SEED` repeats.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from types import FrameType

from tests import budget
from tests.oracle.registry_recipe import Argument
from tests.oracle.registry_recipes import RECIPES
from tests.oracle.wild_table import SCHEMA

from merlot.errors import MerlotError
from merlot.functions.instants import Moment
from merlot.functions.registry import BY_NAME
from merlot.query.plan.binding import bind
from merlot.sql.parse import parse

COUNT = budget.count("MERLOT_CONSTANTS", quick=60, every=0)
CPU_S = 3.0
"""What took too long took a minute; what does not takes a tenth of a second."""
TEXTS = (
    "REPEAT('ab', 5000)",
    "REPEAT('aé', 2000)",
    "REPEAT('a?', 5000)",
    "REPEAT('9', 10000)",
    "CONCATWS('', REPEAT('[', 900), REPEAT('1,', 1500), '1', REPEAT(']', 500))",
)
LONGEST: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("sSc", TEXTS),
    "w": ("2147483647", *TEXTS),
    "I": ("2147483647",),
    "L": ("9223372036854775807",),
    "m": ("9007199254740993",),
    "T": ("CAST(9007199254740 AS TIMESTAMP)",),
    "n": ("CAST('1e900000' AS BIG_DECIMAL)", "10000"),
    **dict.fromkeys("rRy", ("1e300",)),
    "x": (f"TOUTF8({TEXTS[0]})",),
    "b": ("true",),
    **dict.fromkeys("aA", ("GENERATE_INT_ARRAY(0, 9999)",)),
    **dict.fromkeys("eE", ("SPLIT(REPEAT('a,', 5000), ',')",)),
    "u": ("CONCATWS('', 'http://x.org/', REPEAT('a/', 2000))",),
    "p": ("'10.1.2.3'",),
}
"""Constants of a kind (`registry_recipe`)."""


class _LateError(BaseException):
    """The CPU time is over."""


def calls(generator: random.Random) -> Iterator[str]:
    """Calls of every recipe, of long constants in the places of short ones too."""
    for name, recipes in RECIPES.items():
        for recipe in recipes:
            names = recipe.names or (name, *BY_NAME[name].aliases)
            form = recipe.ours or f"{names[0]}({', '.join(f'{{{n}}}' for n in range(len(recipe.arguments)))})"
            for turn in range(4):
                yield form.format(*(_longest(one, generator, turn) for one in recipe.arguments), N="NULL")


def _longest(argument: Argument, generator: random.Random, turn: int) -> str:
    if isinstance(argument, str):
        return generator.choice(LONGEST[argument])
    is_text = argument[0].startswith("'")
    return generator.choice(TEXTS) if is_text and turn % 2 else generator.choice(argument)


def test_no_call_of_long_constants_holds_up_who_plans_it() -> None:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise _LateError

    generator = random.Random(budget.seed())
    every = list(calls(generator))
    before = signal.signal(signal.SIGVTALRM, late)
    slow: list[str] = []
    try:
        for call in every if COUNT == 0 else generator.sample(every, COUNT):
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
            try:
                bind(parse(f"SELECT {call} FROM wild"), SCHEMA, moment=Moment(0))
            except MerlotError:
                pass  # refused, soon enough
            except _LateError:
                slow.append(call)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert slow == []
