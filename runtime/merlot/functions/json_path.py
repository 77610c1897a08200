"""JSON paths, as Jayway's JsonPath reads them: `$.a['b'][0]`, and steps that find any number of values.

A path is parsed once, into steps. Each step leads from a node of a document to other nodes, usually below it. They come
in the order of the document, but names and places between commas in the order of the path, and what `..` finds at a
node before what it finds below that node. A path is definite if each of its steps finds one value at most: it finds a
value or nothing. Any other path finds a list.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from merlot.functions.json_conditions import Condition, parse_condition
from merlot.tree.errors import SqlValidationError

ABSENT: Final = object()
"""Result of a definite path that finds nothing, and value of a text that is not JSON; null is a value."""
EXPECTED: Final = "$.name['name'][0][*][1:3][0,2]..name[?(@.name > 1)].length()"
MAX_LENGTH: Final = 1_000
MAX_DESCENTS: Final = 2
MAX_BRANCHES: Final = 1_000
"""Limit of the product, over all steps, of the number of names or places between commas. It keeps a path from finding
the same values many times over."""
_STEP: Final = re.compile(
    r"""\.(?P<length>length|size)\(\)|\.(?P<name>[^.\[\]*()'"?@$ ]+)|(?P<all>\.?\*|\.?\[\*\])"""
    r"""|\.?\[ *(?P<names>'[^']*'(?: *, *'[^']*')*|"[^"]*"(?: *, *"[^"]*")*) *\]"""
    r"""|\.?\[ *(?P<places>-?[0-9]{1,9}(?: *, *-?[0-9]{1,9})*) *\]"""
    r"""|\.?\[ *(?P<start>-?[0-9]{1,9})? *: *(?P<stop>-?[0-9]{1,9})? *\]|(?P<filter>\.?\[ *\?)"""
)
_NAME: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_DESCENT: Final = re.compile(r"\.\.(?P<name>[^.\[\]*()'\"?@$ ]+)?")
_MANY: Final = re.compile(r"\.\.|\.?\[ *\?")
"""Beginning of a descent or of a filter."""
Trail = tuple[Any, str | int] | None
"""Trail of the node above, and the name or place in that node; None at the root."""


@dataclass(frozen=True, slots=True)
class JsonNode:
    """Value of a document, and where it lies."""

    value: Any
    trail: Trail = None

    def below(self, key: str | int) -> JsonNode:
        return JsonNode(self.value[key], (self.trail, key))

    def children(self) -> Iterator[JsonNode]:
        if isinstance(self.value, dict | list):
            keys: Iterable[Any] = self.value if isinstance(self.value, dict) else range(len(self.value))
            yield from map(self.below, keys)

    def keys(self) -> list[str | int]:
        """Return the keys and places from the root to the node."""
        keys: list[str | int] = []
        trail = self.trail
        while trail is not None:
            trail, key = trail
            keys.append(key)
        return keys[::-1]


class Step(Protocol):
    """Step of a path after its beginning."""

    @property
    def is_definite(self) -> bool:
        """True if the step finds one value at most."""
        ...

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]: ...


@dataclass(frozen=True, slots=True)
class _Names:
    names: tuple[str, ...]

    @property
    def is_definite(self) -> bool:
        return len(self.names) == 1

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        if isinstance(node.value, dict):
            yield from (node.below(name) for name in self.names if name in node.value)


@dataclass(frozen=True, slots=True)
class _Picked:
    """Several names at a path's end. The step finds one object, with those of the members that exist."""

    names: tuple[str, ...]
    is_definite: bool = True

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        if isinstance(node.value, dict):
            yield JsonNode({name: node.value[name] for name in self.names if name in node.value}, node.trail)


@dataclass(frozen=True, slots=True)
class _Places:
    places: tuple[int, ...]

    @property
    def is_definite(self) -> bool:
        return len(self.places) == 1

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        if isinstance(node.value, list):
            length = len(node.value)
            yield from (node.below(place % length) for place in self.places if -length <= place < length)


@dataclass(frozen=True, slots=True)
class _Slice:
    start: int | None
    stop: int | None
    is_definite: bool = False

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        if isinstance(node.value, list):
            yield from map(node.below, range(len(node.value))[self.start : self.stop])


@dataclass(frozen=True, slots=True)
class _Every:
    is_definite: bool = False

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        yield from node.children()


@dataclass(frozen=True, slots=True)
class _Matching:
    """Values of a list for which a condition holds, or an object itself if the condition holds for it."""

    condition: Condition
    is_definite: bool = False

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        candidates = [node] if isinstance(node.value, dict) else node.children()
        yield from (candidate for candidate in candidates if self.condition(candidate.value, root))


@dataclass(frozen=True, slots=True)
class _Descent:
    """Applies another step to the node and all nodes below it."""

    inner: Step
    is_definite: bool = False

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        pending = [node]
        while pending:
            current = pending.pop()
            # The objects in a list are tested one by one when their turn comes.
            if not (isinstance(self.inner, _Matching) and isinstance(current.value, list)):
                yield from self.inner.apply(current, root)
            pending += [child for child in current.children() if isinstance(child.value, dict | list)][::-1]


@dataclass(frozen=True, slots=True)
class _Length:
    is_definite: bool = True

    def apply(self, node: JsonNode, root: Any) -> Iterator[JsonNode]:
        if isinstance(node.value, dict | list | str):
            yield JsonNode(len(node.value), node.trail)


@dataclass(frozen=True, slots=True)
class JsonPath:
    """Parsed path."""

    steps: tuple[Step, ...]

    @property
    def is_definite(self) -> bool:
        return all(step.is_definite for step in self.steps)

    @property
    def most_repeats(self) -> int:
        """Most times that the path finds a value again because names or places between commas are repeated."""
        return math.prod(map(_most_repeats, self.steps))

    def split(self) -> tuple[list[str | int], JsonPath]:
        """Return the keys and places that the path begins with, and the rest. If the rest has a filter, which may read
        the root, return no keys and the whole path."""
        keys: list[str | int] = []
        for step in self.steps:
            if isinstance(step, _Names) and step.is_definite:
                keys.append(step.names[0])
            elif isinstance(step, _Places) and step.is_definite and step.places[0] >= 0:
                keys.append(step.places[0])
            else:
                break
        rest = self.steps[len(keys) :]
        return ([], self) if any(_asks_for_root(step) for step in rest) else (keys, JsonPath(rest))

    def nodes(self, document: Any) -> list[JsonNode]:
        """Return all nodes that the path finds."""
        nodes = [JsonNode(document)]
        for step in self.steps:
            nodes = [child for node in nodes for child in step.apply(node, document)]
        return nodes

    def value(self, document: Any) -> Any:
        """Return the list of values that the path finds; if the path is definite, the value or ABSENT. The document
        ABSENT gives ABSENT."""
        if document is ABSENT:
            return ABSENT
        values = [node.value for node in self.nodes(document)]
        if not self.is_definite:
            return values
        return values[0] if values else ABSENT


def _most_repeats(step: Step) -> int:
    match step:
        case _Descent():
            return _most_repeats(step.inner)
        case _Names():
            return max(Counter(step.names).values())
        case _Places():
            # A value has two places: from the beginning of the list, and from its end.
            signs = (Counter(place for place in step.places if (place < 0) is is_end) for is_end in (False, True))
            return sum(max(sign.values(), default=0) for sign in signs)
    return 1


def _asks_for_root(step: Step) -> bool:
    return isinstance(step, _Matching) or (isinstance(step, _Descent) and _asks_for_root(step.inner))


@lru_cache(maxsize=1_024)
def parse_path(path: str) -> JsonPath:
    """Parse a path; raise SqlValidationError."""
    if not path.startswith("$") or len(path) > MAX_LENGTH:
        raise _refused(path)
    steps: list[Step] = []
    place = 1
    while place < len(path):
        step, place = _step(path, place)
        steps.append(step)
    if steps and isinstance(steps[-1], _Names) and not steps[-1].is_definite:
        steps[-1] = _Picked(steps[-1].names)
    _check(path, steps)
    return JsonPath(tuple(steps))


def _check(path: str, steps: Sequence[Step]) -> None:
    """Raise SqlValidationError if the path might find too much, asks for the length of many values, or goes on after a
    length."""
    has_length = any(isinstance(step, _Length) for step in steps)
    if any(isinstance(step, _Length) for step in steps[:-1]) or (has_length and not JsonPath(tuple(steps)).is_definite):
        raise _refused(path)
    branches, descents = 1, 0
    for step in steps:
        inner = step.inner if isinstance(step, _Descent) else step
        branches *= len(inner.names) if isinstance(inner, _Names) else 1
        branches *= len(inner.places) if isinstance(inner, _Places) else 1
        descents += isinstance(step, _Descent)
    if descents > MAX_DESCENTS:
        raise SqlValidationError(f"JSON path finds too much path='{path:.100}' limit={MAX_DESCENTS} times ..")
    if branches > MAX_BRANCHES:
        raise SqlValidationError(
            f"JSON path finds too much path='{path:.100}' limit={MAX_BRANCHES} combinations of names or places"
        )


def _step(path: str, place: int) -> tuple[Step, int]:
    """Return the step that begins at a place, and where it ends."""
    descent = _DESCENT.match(path, place)
    if descent is not None:
        if descent["name"] is not None:
            return _Descent(_Names((descent["name"],))), descent.end()
        if _DESCENT.match(path, descent.end()):
            raise _refused(path)
        inner, end = _step(path, descent.end())
        if isinstance(inner, _Length):
            raise _refused(path)
        return _Descent(inner), end
    match = _STEP.match(path, place)
    # A star without a dot of its own may stand only after `..`.
    if match is None or (path[place] == "*" and path[place - 2 : place] != ".."):
        raise _refused(path)
    end = match.end()
    if match["filter"] is not None:
        condition, end = parse_condition(path, end, _operand)
        closing = re.compile(" *]").match(path, end)
        if closing is None:
            raise _refused(path)
        return _Matching(condition), closing.end()
    return _plain(match), end


def _plain(match: re.Match[str]) -> Step:
    if match["length"] is not None:
        return _Length()
    if match["name"] is not None:
        return _Names((match["name"],))
    if match["names"] is not None:
        return _Names(tuple(single or double for single, double in _NAME.findall(match["names"])))
    if match["places"] is not None:
        return _Places(tuple(map(int, match["places"].split(","))))
    if match["all"] is not None:
        return _Every()
    start, stop = match["start"], match["stop"]
    return _Slice(None if start is None else int(start), None if stop is None else int(stop))


def _operand(path: str, place: int) -> tuple[JsonPath, int]:
    """Return the definite path that follows an @ or a $ in a condition, and where it ends."""
    steps: list[Step] = []
    # A filter in an operand is not parsed: in it could be another operand, and so on.
    while place < len(path) and path[place] in ".[" and not _MANY.match(path, place):
        step, place = _step(path, place)
        steps.append(step)
    operand = JsonPath(tuple(steps))
    if _MANY.match(path, place) or not operand.is_definite:
        raise SqlValidationError(f"JSON path has a condition on many values path='{path:.100}' expected=@.name[0]")
    return operand, place


def _refused(path: str) -> SqlValidationError:
    return SqlValidationError(f"JSON path is not supported path='{path:.100}' expected={EXPECTED}")
