"""Random calls of every function and aggregate of the registries, in both dialects, arguments of the right types."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.oracle.query_generator import Pair
from tests.oracle.registry_folds import AGGREGATES, Fold
from tests.oracle.registry_recipe import Argument, Recipe
from tests.oracle.registry_recipes import RECIPES

from merlot.aggregates import registry as aggregates
from merlot.functions.registry import BY_NAME

KEYS = ("w", "W", "s", "x", "b", "m", "t")
"""What a query may group by: its values are the same to the last digit."""
SHOWN = (*KEYS, "r", "R", "y", "a", "e")

_COLUMNS: dict[str, tuple[Pair, ...]] = {
    "w": (("j", "j::BIGINT"), ("k", "k::BIGINT")),
    "I": (("i", "i::BIGINT"), ("j", "j::BIGINT")),
    "L": (("l", "l"), ("m", "m"), ("CAST(j AS LONG)", "j::BIGINT")),
    "n": tuple((text, f"{text}::BIGINT") for text in ("1", "2", "7", "10", "1000")),
    "r": (("t", "t"), ("CAST(k AS DOUBLE)", "k::DOUBLE")),
    "R": (("d", "d"), ("f", "f::DOUBLE"), ("t", "t")),
    "y": (("d", "d"), ("t", "t")),
    "s": (("s", "s"), ("w", "w"), ("q", "q"), ("'  a b '",) * 2, ("''",) * 2, ("'ab1c1'",) * 2),
    "S": (("CONCAT('é', s)", "'é' || s"), ("q", "q")),
    "x": (("x", "x"), ("TOUTF8(s)", "encode(s)")),
    "m": (("ms", "ms"),),
    "T": (("ts", "ts"),),
    "b": (("b", "b"), ("NOT b", "NOT b")),
    "a": (("li", "li::BIGINT[]"),),
    "e": (("ls", "ls"),),
    "A": (("li", "li::BIGINT[]"),),
    "E": (("ls", "ls"),),
    "u": tuple(
        (f"CONCATWS('', '{head}/a%20b/c?x=1&y=', w, '{tail}')", f"'{head}/a%20b/c?x=1&y=' || w || '{tail}'")
        for head in ("https://me@www.Ex.com:8080", "http://x.org:81")
        for tail in ("#top", "#")
    ),
    "p": (("CONCATWS('.', '10', '1', CAST(ABS(k) AS STRING), '77')", "'10.1.' || abs(k::BIGINT) || '.77'"),),
    "c": (("CONCATWS(',', w, s, q)", "w || ',' || s || ',' || q"),),
}


class Expressions:
    """Calls without end; the same generator of numbers gives the same ones."""

    def __init__(self, generator: random.Random, condition: Callable[[], Pair]) -> None:
        self._random = generator
        self._condition = condition
        self.nulls = False
        self.asked: set[str] = set()
        """Functions and aggregates that were."""

    def of(self, kinds: tuple[str, ...], depth: int = 2) -> Pair:
        """A call that gives one of them."""
        name, recipe = self._random.choice([one for kind in kinds for one in _GIVEN[kind]])
        if recipe.needs_nulls and not self.nulls:
            return self.of(kinds, depth)
        return self.call(name, recipe, depth)

    def call(self, name: str, recipe: Recipe, depth: int = 2) -> Pair:
        """That function, of arguments that are calls up to a depth."""
        self.asked.add(name)
        arguments = [self._argument(argument, depth - 1) for argument in recipe.arguments]
        names = recipe.names or (name, *BY_NAME[name].aliases)
        ours = recipe.ours or f"{self._random.choice(names)}({', '.join(f'{{{n}}}' for n in range(len(arguments)))})"
        return tuple(  # type: ignore[return-value]
            form.format(*(argument[side] for argument in arguments), N="NULL" if self.nulls else "0")
            for side, form in enumerate((ours, f"({recipe.theirs})"))
        )

    def aggregate(self) -> Pair:
        """An aggregate, of calls, at times filtered."""
        name = self._random.choice(tuple(AGGREGATES))
        return self.fold(name, self._random.choice(AGGREGATES[name]))

    def fold(self, name: str, fold: Fold) -> Pair:
        """That aggregate."""
        self.asked.add(name)
        arguments = [self._argument(argument, 1) for argument in fold.arguments]
        is_filtered = self._random.random() < 0.25
        ours_if, theirs_if = (f" FILTER (WHERE {text})" for text in self._condition()) if is_filtered else ("", "")
        names = (name, *aggregates.find(name).aliases)
        ours = f"{self._random.choice(names)}({', '.join(argument[0] for argument in arguments)}){ours_if}"
        theirs = fold.theirs.format(*(argument[1] for argument in arguments), F=theirs_if)
        return ours, f"COALESCE({theirs}, {fold.empty})" if fold.empty and not self.nulls else theirs

    def _argument(self, argument: Argument, depth: int) -> Pair:
        if isinstance(argument, tuple):
            text = self._random.choice(argument)
            return text, text
        if depth <= 0 or argument not in _GIVING or self._random.random() < 0.5:
            return self._leaf(argument)
        if argument == "b" and self._random.random() < 0.5:
            ours, theirs = self._condition()
            return f"({ours})", f"({theirs})"
        ours, theirs = self.of(_GIVING[argument], depth)
        return (f"MOD({ours}, 1009)", f"({theirs} % 1009)") if argument == "w" else (ours, theirs)

    def _leaf(self, code: str) -> Pair:
        if code == "w" and self._random.random() < 0.2:
            value = self._random.randrange(-20, 21)
            return str(value), f"({value}::BIGINT)"
        return self._random.choice(_COLUMNS[code])


_GIVING: dict[str, tuple[str, ...]] = {
    "w": ("w", "W"),
    "r": ("r",),
    "R": ("R", "r"),
    "y": ("y", "r"),
    "s": ("s",),
    "x": ("x",),
    "m": ("m",),
    "b": ("b",),
    "a": ("a",),
    "e": ("e",),
}
_GIVEN: dict[str, list[tuple[str, Recipe]]] = {}
for _name, _recipes in RECIPES.items():
    for _recipe in _recipes:
        _GIVEN.setdefault(_recipe.gives, []).append((_name, _recipe))
