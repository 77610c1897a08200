"""Bind GROUP BY with GROUPING SETS, ROLLUP and CUBE: the keys, and the keys of each set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from merlot.sql.bind import bind_group_by
from merlot.sql.expressions import Binder
from merlot.sql.syntax import Cube, GroupingSets, Node, Rollup, Row, bare
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Expr, Literal, Output

MAX_GROUPING_SETS = 128
"""Most sets: each is an aggregation of its own. CUBE of seven columns has as many."""

_KINDS = (Rollup, Cube, GroupingSets)
Nodes = tuple[Node, ...]


def bind_grouping(
    group: Sequence[Node], outputs: Sequence[Output], binder: Binder
) -> tuple[tuple[Expr, ...], tuple[tuple[int, ...], ...]]:
    """Return the distinct keys, and sets of their positions; no sets if all keys form the only set."""
    if not any(isinstance(node, _KINDS) for node in group):
        return bind_group_by(group, outputs, binder), ()
    sets = _product([_sets_of(node) for node in group])
    # Keys in the order of their first appearance; a node may be in many sets.
    nodes = list({id(node): node for chosen in sets for node in chosen}.values())
    keys: dict[Expr, int] = {}
    positions: dict[int, int] = {}
    for node in nodes:
        (key,) = bind_group_by([node], outputs, binder)
        if isinstance(key, Literal):
            raise UnsupportedSqlError("a constant in GROUPING SETS, ROLLUP or CUBE")
        positions[id(node)] = keys.setdefault(key, len(keys))
    return tuple(keys), tuple(tuple(dict.fromkeys(positions[id(node)] for node in chosen)) for chosen in sets)


def _sets_of(node: Node) -> list[Nodes]:
    """Return the sets of an element of GROUP BY; `(a, b)` is a set of two columns."""
    if isinstance(node, Rollup):
        _check_number(len(node.keys) + 1)
        parts = list(map(_columns, node.keys))
        return [tuple(itertools.chain(*parts[:count])) for count in range(len(parts), -1, -1)]
    if isinstance(node, Cube):
        parts = list(map(_columns, node.keys))
        _check_number(2 ** min(len(parts), 60))
        chosen = itertools.product((True, False), repeat=len(parts))
        return [tuple(itertools.chain(*itertools.compress(parts, flags))) for flags in chosen]
    if isinstance(node, GroupingSets):
        sets: list[Nodes] = []
        for inner in node.sets:
            sets += _sets_of(inner)
            _check_number(len(sets))
        return sets
    return [_columns(node)]


def _columns(node: Node) -> Nodes:
    inner = bare(node)
    return tuple(inner.items) if isinstance(inner, Row) else (inner,)


def _product(elements: Sequence[list[Nodes]]) -> list[Nodes]:
    sets: list[Nodes] = [()]
    for choices in elements:
        _check_number(len(sets) * len(choices))
        sets = [(*before, *after) for before in sets for after in choices]
    return sets


def _check_number(number: int) -> None:
    if number > MAX_GROUPING_SETS:
        raise SqlValidationError(f"too many grouping sets limit={MAX_GROUPING_SETS}")
