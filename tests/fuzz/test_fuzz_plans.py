"""A server answers or refuses any tree that it is sent as a plan: without a bug, in 3 s of CPU and 512 MiB at most.

Plans are those of every `.slt` file, spoiled as JSON: other types, other functions, other constants, grafts of one
another, calls within calls. A child with bounded memory does with each what a server does with a request.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests import budget
from tests.fuzz.children import CPU_S, Watch, bound_memory, in_child
from tests.fuzz.fuzzing import spoiled_json
from tests.sql.slt_data import datasets
from tests.sql.slt_reader import read_file
from tests.sql.slt_segments import build_paths, consuming_segment
from tests.sql.slt_stages import is_staged

from merlot.aggregates import registry as aggregates
from merlot.codes import QueryErrorCode
from merlot.errors import MerlotError
from merlot.functions.registry import BY_NAME
from merlot.query.context import CancelToken, ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.rewrite import rewritten
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment
from merlot.server import rpc
from merlot.spec.schema import TableSchema
from merlot.sql.parse import one_stage, parse_statement
from merlot.tree import tree_json
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.wire.codec import encode_response
from merlot.wire.messages import ServerResponse

SLT = Path(__file__).parents[1] / "sql"
TABLES = ("things", "orders", "edges", "sketched")
NAMES = (*BY_NAME, *(function.name for function in aggregates.FUNCTIONS))
TYPES = tuple(str(SqlType(base, is_array)) for base in TypeName for is_array in (False, True))
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 10_000, 10_001, (1 << 31) - 1, 1 << 31, -(1 << 63), (1 << 63) - 1, 0.5, -0.0, 1e308),
    *("", "x", "%", "\\", "(", "[a", "DAY", "UTC", "yyyy", "1:MILLISECONDS:EPOCH", "$.a", "{", "\0", "é", "x" * 70_000),
    *({"d": "1E+999999"}, {"d": "-1E-999999"}, {"d": "NaN"}, {"b": "00ff"}, {"b": "0"}, {"f": "nan"}, {"f": "inf"}, {}),
)
Plan = tuple[str, dict[str, Any], Any]
"""The table, the query without its WHERE, and the WHERE or None."""


def corpus() -> list[Plan]:
    """Plans of the queries of one stage, as a broker sends them."""
    schemas = {dataset.name: dataset.schema for dataset in datasets()}
    plans: list[Plan] = []
    for path in sorted(SLT.glob("*.slt")):
        for case in read_file(path)[:: 10 if budget.IS_QUICK else 1]:
            with contextlib.suppress(MerlotError):  # some texts are there to be refused
                statement = parse_statement(case.sql)
                parsed = None if is_staged(statement) else one_stage(statement)
                if parsed is None or parsed.table not in TABLES:
                    continue
                bound = bind(parsed, schemas[parsed.table])
                where = tree_json.where_to_json(rewritten(bound.where))
                query = json.loads(tree_json.to_json(replace(bound, where=None)))
                plans.append((parsed.table, query, json.loads(where) if where else None))
    return plans


def expressions(plan: Any) -> list[list[Any]]:
    """Every expression in a plan, those within others too."""
    found, pending = [], [plan]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            if len(value) > 2 and value[0] in ("L", "C", "F", "A") and isinstance(value[1], str):
                found.append(value)
            pending.extend(value)
        elif isinstance(value, dict):
            pending.extend(value.values())
    return found


class Spoiler:
    """Plans with some of their expressions changed."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._expressions = [one for _, query, where in plans for one in expressions([query, where])]

    def plan(self, rng: random.Random) -> Plan:
        """A plan for a table, right in most of its parts."""
        table, query, where = json.loads(json.dumps(rng.choice(self._plans)))
        if rng.random() < 0.15:
            query, where = spoiled_json(rng, query), spoiled_json(rng, where)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            found = expressions([query, where])
            if found:
                self._spoil(rng, rng.choice(found))
        if rng.random() < 0.1 and isinstance(query, dict):
            member = rng.choice(("limit", "offset", "options", "distinct", "explain", "having", "more"))
            query[member] = rng.choice((0, -1, 1 << 31, [["maxServerResponseSizeBytes", "x"]], True, None, where))
        return table, query, where

    def _spoil(self, rng: random.Random, expr: list[Any]) -> None:
        match rng.randrange(8):
            case 0:
                expr[1] = rng.choice(TYPES)
            case 1 if expr[0] in "FA":
                expr[2] = rng.choice(NAMES)
            case 2 if expr[0] == "L":
                expr[2] = rng.choice(VALUES)
            case 3 if expr[0] in "FA" and isinstance(expr[3], list):
                expr[3] = expr[3] * 2 if rng.random() < 0.5 else expr[3][:-1]
            case 4 if expr[0] in "FA" and isinstance(expr[3], list):
                expr[3].append(json.loads(json.dumps(rng.choice(self._expressions))))
            case 5:
                for _ in range(rng.choice((1, 2, 30, 100, 200))):
                    expr[:] = [
                        "F",
                        expr[1],
                        rng.choice((*NAMES[:40], "upper", "concat", "repeat", "plus")),
                        [list(expr)],
                    ]
            case 6 if expr[0] == "F" and isinstance(expr[3], list) and expr[3]:
                expr[2], last = rng.choice(("in", "not_in")), expr[3][-1]
                is_short = last[:1] == ["L"] and len(str(last)) < 50
                expr[3] = expr[3][:1] + [last] * (rng.choice((2, 50, 100_001)) if is_short else 2)
            case _:
                expr[:] = json.loads(json.dumps(rng.choice(self._expressions)))


def encoded(value: Any) -> bytes:
    """JSON as Python writes it: numbers beyond 64 bits, too."""
    return b"" if value is None else json.dumps(value).encode()


def shown(value: Any) -> str:
    """The beginning of a plan, for whoever looks into what it did."""
    return encoded(value)[:1500].decode()


class Server:
    """What a server does with a request, over a few small segments of each table."""

    def __init__(self, folder: Path) -> None:
        self._schemas: dict[str, TableSchema] = {}
        self._segments: dict[str, list[Segment]] = {}
        for dataset in datasets():
            if dataset.name in TABLES:
                rows = dataset.rows.num_rows
                paths = build_paths(dataset, folder, [0, rows // 2, rows - 1], varied=True)
                opened: list[Segment] = [ImmutableSegment.open(path) for path in paths]
                self._segments[dataset.name] = [*opened, consuming_segment(dataset, rows - 1, rows).snapshot()]
                self._schemas[dataset.name] = dataset.schema

    def code(self, plan: Plan) -> int:
        """The code of the answer, 0 if it has rows. Raises what would be a bug."""
        table, query, where = plan
        context = ExecutionContext(schema=self._schemas[table], cancel=CancelToken.after(2 * CPU_S))
        try:
            prepared = rpc._prepare(encoded(query), encoded(where))
            if not prepared.columns.items() <= types_of(self._schemas[table]).items():
                return QueryErrorCode.QUERY_PLANNING
            partial = execute(prepared.leaf, self._segments[table], context)
            encode_response(ServerResponse(partial=partial))
        except MerlotError as error:
            return error.code
        return 0


def types_of(schema: TableSchema) -> dict[str, SqlType]:
    """As a table's state has them."""
    return {field.name: SqlType(TypeName(field.type), field.multi_value) for field in schema.fields}


def answer_all(count: int) -> None:
    """In the child: every plan is answered or refused, in its time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        server, plans = Server(Path(folder)), corpus()
        refused = [plan for plan in plans if server.code(plan) == QueryErrorCode.QUERY_PLANNING]
        assert not refused, f"{len(refused)} plans of brokers are refused: {refused[:3]}"
        spoiler = Spoiler(plans)
        bound_memory()
        watch, codes, problems = Watch(), Counter[int](), []
        for number in range(count):
            plan = spoiler.plan(random.Random(f"{budget.seed()}-{number}"))
            text = shown(plan)
            try:
                with watch.case(text):
                    code = server.code(plan)
            except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
                problems.append(f"{type(error).__name__}: {error!s:.200}\n  {text}")
            else:
                codes[code] += 1
    print(f"fuzz plans MERLOT_SEED={budget.seed()}: {count} cases, codes {dict(codes)}", flush=True)
    problems += watch.slow
    print("\n".join(problems[:20]), file=sys.stderr, flush=True)
    assert not problems, f"{len(problems)} plans are a bug, or too slow"
    assert codes[0], "no plan is answered"
    assert codes[QueryErrorCode.QUERY_PLANNING], "no plan is refused"
    assert not codes[QueryErrorCode.INTERNAL]


def test_spoiled_plans_are_answered_or_refused() -> None:
    in_child(answer_all, budget.count("MERLOT_FUZZ_PLANS", quick=80, every=5_000, fuzz=100_000))
