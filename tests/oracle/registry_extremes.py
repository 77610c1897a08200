"""Every function and aggregate of the registries, of the longest arguments that a query may have, within little memory.

`python -m tests.oracle.registry_extremes FOLDER SEED COUNT ROWS` asks COUNT of `cases` (0: all) over ROWS rows, in a
process that may take `MEMORY_BYTES`. It prints `case N SQL` before each and `answered`, `refused CODE` or `failed
…` after it. A refusal is an error that Merlot raises on purpose; whatever is none is a failure.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.oracle.numbered_cases import failure
from tests.oracle.registry_folds import AGGREGATES
from tests.oracle.registry_recipe import Argument
from tests.oracle.registry_recipes import RECIPES
from tests.oracle.wild_table import SCHEMA, wild
from tests.sql.slt_segments import build_paths

from merlot import memory
from merlot.aggregates import registry as aggregates
from merlot.aggregates.function import AggregateParameter
from merlot.codes import QueryErrorCode
from merlot.errors import MerlotError
from merlot.functions.registry import BY_NAME
from merlot.query.answer.reduce import reduce
from merlot.query.context import CancelToken, ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.immutable import ImmutableSegment
from merlot.sql.parse import parse
from merlot.values.types import TypeName

MEMORY_BYTES: Final = 1 << 30
TIMEOUT_S: Final = 5.0
_LONG_TEXT: Final = "REPEAT(w, 10000)"
_LONG_LIST: Final = "SPLIT(REPEAT(CONCAT(w, ','), 2000), ',')"
_STRETCHED: Final[dict[str, tuple[str, ...]]] = {
    "w": ("k", "2147483647"),
    "I": ("i",),
    "L": ("l",),
    "n": ("10000",),
    "r": ("t", "1e300"),
    "R": ("d",),
    "y": ("d",),
    "s": (_LONG_TEXT, "REPEAT(q, 100)", "CONCAT(REPEAT('é', 9000), s)"),
    "S": (_LONG_TEXT, "REPEAT(CONCAT(q, CAST(id AS STRING)), 1000)"),
    "x": (f"TOUTF8({_LONG_TEXT})",),
    "m": ("ms",),
    "T": ("ts",),
    "b": ("b",),
    "a": ("GENERATE_INT_ARRAY(0, 9999)", "GENERATE_INT_ARRAY(0, ABS(MOD(id, 5000)))"),
    "e": (_LONG_LIST,),
    "A": ("GENERATE_INT_ARRAY(0, 9999)",),
    "E": (_LONG_LIST,),
    "u": ("CONCATWS('', 'http://x.org/', REPEAT('a/', 5000), CAST(id AS STRING), '?', REPEAT('x=1&', 5000))",),
    "p": ("'10.1.2.3'",),
    "c": (f"CONCATWS(',', {_LONG_TEXT}, s, q)",),
}
"""Long arguments of a kind (`registry_recipe`)."""
_CONSTANTS: Final[dict[TypeName, tuple[str, ...]]] = {
    TypeName.INT: ("10000", "65535", "1048576", "20", "16", "1"),
    TypeName.LONG: ("10000", "9223372036854775807"),
    TypeName.DOUBLE: ("50", "1e9"),
    TypeName.STRING: ("REPEAT('b', 10000)", "','", "'STRING'", "'nominalEntries=1048576'", "'strictOrder'"),
    TypeName.BOOLEAN: ("true", "false"),
}
_COLUMNS: Final[dict[TypeName, tuple[str, ...]]] = {
    TypeName.INT: ("id", "k"),
    TypeName.LONG: ("m", "ms"),
    TypeName.DOUBLE: ("t",),
    TypeName.STRING: ("w", "REPEAT(w, 100)", "CAST(id AS STRING)"),
    TypeName.BYTES: ("x",),
    TypeName.BOOLEAN: ("b",),
    TypeName.BIG_DECIMAL: ("n",),
}
EXTRAS: Final = (
    "LENGTH(REPEAT(REPEAT('a', 10000), 10000))",
    "LENGTH(REPEAT(REPEAT(REPEAT('a', 10000), 10000), 21))",
    "LENGTH(REGEXP_REPLACE(REPEAT(w, 10000), '.', REPEAT('b', 10000)))",
    "REPEAT(w, 10000)",
    "LPAD(w, 10000, '日')",
    "REPLACE(REPEAT(w, 10000), 'a', REPEAT('b', 10000))",
    "REPLACE(REPEAT(w, 10000), '', q)",
    "CASE WHEN b THEN REPEAT('a', 10000) ELSE s END",
    "DATETIMECONVERTWINDOWHOP(ms, 'EPOCH', 'EPOCH', '1:SECONDS', '10000:SECONDS')",
    "DATETIMECONVERTWINDOWHOP(ms, 'EPOCH', 'SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm', '1:SECONDS', '9000:SECONDS')",
    f"TODATETIME(ms, '{'yyyy-MM-dd ' * 90}')",
    "UNIQUENGRAMS(REPEAT(w, 10000), 900, 999)",
    "PREFIXES(REPEAT(w, 10000), 1000)",
    "JSONEXTRACTKEY(CONCATWS('', REPEAT('[', 900), REPEAT('1,', 9000), '1', REPEAT(']', 900)), '$..**')",
    "JSONEXTRACTSCALAR(CONCATWS('', REPEAT('[', 900), REPEAT('1,', 9000), '1', REPEAT(']', 900)), '$..*', 'STRING')",
    "CAST(CONCAT('1e', CAST(900000 + MOD(id, 99) AS STRING)) AS BIG_DECIMAL)",
    "ARRAYTOSTRING(GENERATE_INT_ARRAY(0, 9999), REPEAT('b', 10000))",
    "NORMALIZE(REPEAT('ﷺ', 10000), 'NFKD')",
)
"""Calls that once ended a process, and their kin."""


def cases(generator: random.Random) -> Iterator[str]:
    """Queries without end of order: of every recipe, of every aggregate, and the extras."""
    for call in EXTRAS:
        yield f"SELECT {call} FROM wild LIMIT 1000000"
    for name, recipes in RECIPES.items():
        for recipe in recipes:
            arguments = [_stretched(argument, generator) for argument in recipe.arguments]
            names = recipe.names or (name, *BY_NAME[name].aliases)
            form = recipe.ours or f"{names[0]}({', '.join(f'{{{n}}}' for n in range(len(arguments)))})"
            call = form.format(*arguments, N="NULL")
            yield f"SELECT {call} FROM wild LIMIT 1000000"
            yield f"SELECT {call}, COUNT(*) FROM wild GROUP BY {call} LIMIT 10"
    for function in aggregates.FUNCTIONS:
        known = AGGREGATES.get(function.name, ())
        folds = [[_stretched(argument, generator) for argument in fold.arguments] for fold in known]
        folds += [list(found) for found in _given(function.parameters, generator)]
        for arguments in folds:
            call = f"{function.name}({', '.join(arguments)})"
            yield f"SELECT {call} FROM wild LIMIT 10"
            yield f"SELECT id, {call} FROM wild GROUP BY id LIMIT 10"


def _stretched(argument: Argument, generator: random.Random) -> str:
    if isinstance(argument, str):
        return generator.choice(_STRETCHED[argument])
    return generator.choice((*argument, "10000") if argument[0].lstrip("-").isdecimal() else argument)


def _given(parameters: tuple[AggregateParameter, ...], generator: random.Random) -> Iterator[tuple[str, ...]]:
    """Arguments of an aggregate by the types that it takes: of constants each in turn."""
    for place in range(max(map(len, _CONSTANTS.values()))):
        arguments = []
        for parameter in parameters:
            among = _CONSTANTS if parameter.is_constant else _COLUMNS
            kinds = [type_ for type_ in among if type_ in parameter.takes]
            if not kinds:
                return
            values = among[generator.choice(kinds)]
            arguments.append(values[place % len(values)] if parameter.is_constant else generator.choice(values))
        yield tuple(arguments)


def _ask(sql: str, segment: ImmutableSegment, context: ExecutionContext) -> str:
    try:
        made = plan(bind(parse(sql), SCHEMA))
        reduce(made, [execute(made.leaf, [segment], context)], SCHEMA)
    except MerlotError as error:
        return "failed by code 450" if error.code == QueryErrorCode.INTERNAL else f"refused {error.code}"
    except Exception as error:  # noqa: BLE001  whatever is no refusal is what is looked for
        return failure(error)
    return "answered"


def _bound() -> None:
    """Have this process take `MEMORY_BYTES` more than it has mapped, and believe that there is no more memory."""
    memory.total_bytes = lambda: MEMORY_BYTES
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))


def main() -> None:
    folder, seed, count, num_rows = Path(sys.argv[1]), *map(int, sys.argv[2:])
    table = wild(random.Random(seed), num_rows)
    (path,) = build_paths(table, folder, [0, num_rows], varied=False)
    generator = random.Random(seed)
    every = list(cases(generator))
    chosen = sorted(generator.sample(range(len(every)), count)) if 0 < count < len(every) else range(len(every))
    _bound()
    segment = ImmutableSegment.open(path)
    with ThreadPoolExecutor(2) as pool:
        for number in chosen:
            print(f"case {number} {every[number]}", flush=True)
            cancel = CancelToken.after(TIMEOUT_S)
            print(_ask(every[number], segment, ExecutionContext(schema=SCHEMA, pool=pool, cancel=cancel)), flush=True)


if __name__ == "__main__":
    main()
