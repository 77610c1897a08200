"""Write docs/functions.md, a head and the registries: `python -m tests.contracts.functions.page [--check] docs`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.contracts.functions.answers import ANSWERS
from tests.contracts.functions.values import value_of

from merlot.aggregates import registry as aggregates
from merlot.aggregates.function import AggregationFunction
from merlot.functions.function import Family, Lists, ScalarFunction
from merlot.functions.registry import FAMILIES
from merlot.tree.types import SqlType

NAME = "functions.md"
MARK = "<!-- Generated from the registries by `make docs`; do not edit below. -->\n"


def render() -> str:
    """All that follows the mark."""
    lines = [line for family in FAMILIES for line in _family(family)]
    return "\n".join([*lines, *_aggregates()])


def page(text: str) -> str:
    """The page with its generated part renewed; ValueError without the mark."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{NAME} has lost its mark: {MARK.strip()}")
    return f"{head}{MARK}\n{render()}\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check say whether it differs; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.contracts.functions.page")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page is not what there is")
    options = parser.parse_args(arguments)
    path = options.directory / NAME
    text = path.read_text()
    if options.check:
        if page(text) != text:
            sys.stderr.write(f"{path} differs from the registries: run `make docs`\n")
            return 1
        return 0
    path.write_text(page(text))
    return 0


def _family(family: Family) -> list[str]:
    heads = ["function", "also", "arguments", "type", "examples"]
    return [f"## {family.title}", "", *_table(heads, [_row(function) for function in family.functions]), ""]


def _row(function: ScalarFunction) -> list[str]:
    written = function.syntax or f"{function.name.upper()}({_arguments(function)})"
    kinds = ", ".join(dict.fromkeys(parameter.kind.words for parameter in function.parameters))
    rules = [kinds] if kinds else []
    if function.sees_nulls:
        rules.append("sees nulls")
    if function.lists is Lists.ANY_VALUE:
        rules.append("a list: any value")
    examples = "<br>".join(
        f"{_code(sql)} = {_code(json.dumps(value_of(sql), ensure_ascii=False))}" for sql in function.examples
    )
    aliases = " ".join(alias.upper() for alias in function.aliases)
    return [_code(written), aliases, "; ".join(rules), _type(function), examples]


def _type(function: ScalarFunction) -> str:
    return str(function.result) if isinstance(function.result, SqlType) else "of its arguments"


def _arguments(function: ScalarFunction) -> str:
    return _list(function.parameters, lambda parameter: ", …" if parameter.repeats else "")


def _list(parameters: Any, rest: Any) -> str:
    text = ""
    for parameter in parameters:
        name = f"{', ' if text else ''}{_name(parameter)}{rest(parameter)}"
        text += f"[{name}]" if parameter.is_optional else name
    return text


def _name(parameter: Any) -> str:
    name: str = parameter.name.replace(" ", "_")
    return f"'{name}'" if parameter.is_constant else name


def _aggregates() -> list[str]:
    heads = ["aggregate", "also", "answers", "stored states"]
    return ["## Aggregates", "", *_table(heads, [_aggregate(function) for function in aggregates.FUNCTIONS])]


def _aggregate(function: AggregationFunction) -> list[str]:
    arguments = function.written or _list(function.parameters, lambda _parameter: "")
    written = f"{function.name.upper()}({arguments})"
    aliases = " ".join(alias.upper() for alias in function.aliases)
    return [_code(written), aliases, _answer(function), "read and written" if function.has_bytes else ""]


def _answer(function: AggregationFunction) -> str:
    if function.flattens:
        return f"{function.name.removesuffix('mv').upper()} of every value of a multi-value column"
    return ANSWERS[function.name]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


if __name__ == "__main__":
    sys.exit(main())
