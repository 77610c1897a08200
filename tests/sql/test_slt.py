"""Every case of every `.slt` file, on every layout, against DuckDB or the rows the file gives.

A quick run deals layouts out to cases. `make fuzz` has layouts of every index by itself, of none and of all, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from tests.sql.slt_answers import Answer, Row, first_difference, normalize, sort_rows
from tests.sql.slt_data import datasets
from tests.sql.slt_dealing import deal
from tests.sql.slt_index_sets import INDEXED, IS_WANTED
from tests.sql.slt_layouts import IN_PROCESS, LAYOUTS, OVER_HTTP, InProcess, Layout
from tests.sql.slt_oracle import Oracle
from tests.sql.slt_reader import Case, read_file
from tests.sql.slt_stages import bind_stages, is_staged

from merlot.aggregates import registry as aggregates
from merlot.errors import MerlotError
from merlot.functions.registry import FUNCTIONS
from merlot.query.plan.binding import bind
from merlot.sql.parse import ParsedStatement, parse, parse_statement
from merlot.tree.names import canonical_key
from merlot.tree.nodes import BoundQuery, Expr
from merlot.tree.tree_json import from_json, to_json

_FILES = sorted(Path(__file__).parent.glob("*.slt"))


@cache
def _cases(path: Path) -> list[Case]:
    return read_file(path)


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle(datasets())


_RUNTIME_ERROR = 200
_MARKS = {"zookeeper-two-servers": [pytest.mark.cluster]}
_LAYOUTS = {**LAYOUTS, **(INDEXED if IS_WANTED else {})}


@cache
def _dealt(path: Path) -> dict[str, list[Case]]:
    return deal(_cases(path), _LAYOUTS)


_ASKED = [(name, path) for name in _LAYOUTS for path in _FILES if _dealt(path)[name]]


@pytest.fixture(scope="session")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Layout]]:
    """Gives a layout by its name. It stays until another one is asked for: tests are in the order of layouts."""
    started: list[tuple[str, Layout]] = []
    with ExitStack() as stack:

        def start(name: str) -> Layout:
            if not started or started[0][0] != name:
                stack.close()
                folder = tmp_path_factory.mktemp(name)
                started[:] = [(name, stack.enter_context(_LAYOUTS[name](datasets(), folder)))]
            return started[0][1]

        yield start


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_cases_bind_to_their_types_and_make_sense_to_duckdb(path: Path, oracle: Oracle) -> None:
    problems = [problem for case in _cases(path) if (problem := _binding_problem(case, oracle)) is not None]
    assert not problems, f"{len(problems)} of {len(_cases(path))} cases\n" + "\n".join(problems)


def test_every_function_and_aggregate_has_cases() -> None:
    words = [
        canonical_key(word)
        for path in _FILES
        for case in _cases(path)
        if case.error is None
        for word in re.findall(r"[A-Za-z]\w*(?=\s*\()", case.sql)
    ]
    counts = Counter(words)
    called = [(function.name, function.aliases) for function in FUNCTIONS if not function.syntax]
    called += [(function.name, function.aliases) for function in aggregates.FUNCTIONS]
    times = {name: sum(counts[canonical_key(each)] for each in (name, *aliases)) for name, aliases in called}
    assert [name for name, count in times.items() if not count] == ["now", "ago"]  # no file knows now


def _bind(case: Case) -> BoundQuery:
    parsed = parse(case.sql)
    return bind(parsed, {dataset.name: dataset.schema for dataset in datasets()}.get(parsed.table or ""))


def _binding_problem(case: Case, oracle: Oracle) -> str | None:
    try:
        statement = parse_statement(case.sql)
        query = _staged_types(statement) if is_staged(statement) else _bind(case)
    except MerlotError as error:
        return _error_problem(case, error)
    if case.error is not None:
        is_found_by_running = case.error[0] == _RUNTIME_ERROR
        return None if is_found_by_running else f"{case.where}: accepted, though it should be refused\n    {case.sql}"
    is_one_stage = isinstance(query, BoundQuery)
    types = tuple(_result_type(output.expr, query) for output in query.select) if is_one_stage else query
    if types != case.types:
        return f"{case.where}: types {types}, wanted {case.types}\n    {case.sql}"
    if is_one_stage and from_json(to_json(query)) != query:
        return f"{case.where}: changed by its encoding\n    {case.sql}"
    if case.expected is None:
        _duckdbs_rows(case, oracle)
    return None


def _staged_types(statement: ParsedStatement) -> tuple[str, ...]:
    bound = bind_stages(statement, {dataset.name: dataset.schema for dataset in datasets()})
    return tuple(str(output.expr.type) for output in bound.query.outputs)


def _result_type(expr: Expr, query: BoundQuery) -> str:
    """An array that is grouped by, or made distinct, is taken apart."""
    is_key = query.distinct or expr in query.group_by
    return str(expr.type.base) if is_key else str(expr.type)


@pytest.mark.parametrize(
    ("name", "path"),
    [pytest.param(name, path, id=f"{name}-{path.stem}", marks=_MARKS.get(name, [])) for name, path in _ASKED],
)
def test_answers_are_right(name: str, path: Path, layouts: Callable[[str], Layout], oracle: Oracle) -> None:
    layout, cases = layouts(name), _dealt(path)[name]
    problems = [problem for case in cases if (problem := _problem(case, layout, oracle)) is not None]
    assert not problems, f"{len(problems)} of {len(cases)} cases\n" + "\n".join(problems)


def test_every_case_is_asked_in_process_and_over_http() -> None:
    for kind in (IN_PROCESS, OVER_HTTP):
        asked = {case.where for path in _FILES for name in kind for case in _dealt(path)[name]}
        assert asked == {case.where for path in _FILES for case in _cases(path)}
    assert {name for path in _FILES for case in _cases(path) for name in case.pinned} <= set(LAYOUTS)


def test_every_layout_is_asked_cases_of_every_file_that_has_as_many() -> None:
    large = [path for path in _FILES if len(_cases(path)) >= len(IN_PROCESS)]
    assert [(name, path.stem) for path in large for name in LAYOUTS if (name, path) not in _ASKED] == []


def test_the_files_hold_thousands_of_cases() -> None:
    """A file that is lost, or read in part, would fail nothing."""
    assert sum(len(_cases(path)) for path in _FILES) > 3_700


def test_star_trees_answer_what_fits_them(layouts: Callable[[str], Layout]) -> None:
    """Each case of their file; one without a match is left out before anything is read."""
    layout = layouts("star-tree")
    cases = _cases(Path(__file__).parent / "star_tree.slt")
    assert len(cases) > 20
    assert isinstance(layout, InProcess)
    plans = {case.sql: layout.plans(case.sql) for case in cases}
    rows = {case.sql: layout.plans(f"SET useStarTree=false; {case.sql}") for case in cases}
    assert [sql for sql, told in plans.items() if not all("FILTER_STARTREE_INDEX" in plan for plan in told)] == []
    assert [sql for sql, told in rows.items() if any("FILTER_STARTREE_INDEX" in plan for plan in told)] == []


def _problem(case: Case, layout: Layout, oracle: Oracle) -> str | None:
    """What is wrong with the answer to a case, after its place; None if it is right."""
    try:
        answer = layout.query(case.sql)
    except Exception as error:  # noqa: BLE001 (a crash is one case's result: the others still run)
        return _error_problem(case, error)
    if case.error is not None:
        return f"{case.where}: accepted, though it should be refused\n    {case.sql}"
    if tuple(answer.types) != case.types:
        return f"{case.where}: types {answer.types}, wanted {list(case.types)}\n    {case.sql}"
    try:
        difference = _difference(case, answer, oracle)
    except AssertionError as error:
        difference = str(error)
    return None if difference is None else f"{case.where}: {difference}\n    {case.sql}"


def _error_problem(case: Case, error: Exception) -> str | None:
    code = getattr(error, "code", None)
    if not isinstance(error, MerlotError) and code is None:
        return f"{case.where}: crashed: {type(error).__name__}: {error}\n    {case.sql}"
    if case.error is None:
        return f"{case.where}: refused: {error}\n    {case.sql}"
    wanted_code, text = case.error
    if code != wanted_code or text not in str(error) or len(str(error).splitlines()) not in (1, 3):
        return f"{case.where}: refused with {code} {error}, wanted {wanted_code} {text}"
    return None


def _difference(case: Case, answer: Answer, oracle: Oracle) -> str | None:
    got = normalize(answer.rows, case.types)
    if case.expected is not None:
        wanted = [tuple(None if cell == "NULL" else cell for cell in row) for row in case.expected]
        got = [tuple(None if cell is None else _text(cell) for cell in row) for row in got]
    else:
        wanted = _duckdbs_rows(case, oracle)
    if case.any_rows:
        return _missing_row(case, got, wanted)
    if not case.is_ordered:
        got, wanted = sort_rows(got), sort_rows(wanted) if case.expected is not None else wanted
    return first_difference(got, wanted)


def _duckdbs_rows(case: Case, oracle: Oracle) -> list[Row]:
    """Sorted unless they must come in one order."""
    return oracle.kept_rows(case.duckdb_sql, case.types, nulls=case.null_handling, is_ordered=case.is_ordered)


def _text(cell: object) -> str:
    return f"{cell:.12g}" if isinstance(cell, float) else str(cell).lower() if isinstance(cell, bool) else str(cell)


def _missing_row(case: Case, got: list[Row], wanted: list[Row]) -> str | None:
    """Any rows will do, as long as each is one of the wanted and there are as many as LIMIT allows."""
    parsed = bind(
        parse(case.sql), {dataset.name: dataset.schema for dataset in datasets()}[parse(case.sql).table or ""]
    )
    expected_count = max(0, min(parsed.limit, len(wanted) - parsed.offset))
    if len(got) != expected_count:
        return f"got {len(got)} rows, wanted any {expected_count}"
    remaining = list(wanted)
    for row in got:
        if row not in remaining:
            return f"row {row} is not in DuckDB's answer"
        remaining.remove(row)
    return None
