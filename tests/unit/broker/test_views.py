"""Plans are shared by askers who see the same, and by nobody else. Answers tell nothing of what is not seen."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.viewers import Viewer
from tests.unit.broker.test_planning import CLOCK, FLIGHTS, served

from merlot.broker.concealment import conceal, concealed_plan, is_concealed
from merlot.broker.planning.planner import PlannedQuery, Planner
from merlot.broker.query_errors import QueryException, named
from merlot.broker.response import BrokerAnswer
from merlot.broker.tables import ServedTable
from merlot.codes import QueryErrorCode
from merlot.errors import AccessDeniedError, MerlotError
from merlot.query.answer.result import QueryStats
from merlot.query.plan.expressions import literal_values, walk
from merlot.security.access import WHOLE_TABLE, AccessView, united
from merlot.sql.views import UnusableViewError, check_view
from merlot.tree.errors import UnknownColumnError
from merlot.tree.nodes import Call, Column, Expr

MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  timeColumn: at
  schema:
    fields:
      - {name: carrier, type: STRING}
      - {name: Salary, type: INT}
      - {name: delay, type: INT}
      - {name: at, type: TIMESTAMP, role: dateTime}
"""
AA = AccessView(("carrier = 'AA'",))
BB = AccessView(("carrier = 'BB'",))
MASKED = AccessView((), frozenset({"delay"}), {"salary": "Salary - MOD(Salary, 1000)"})


def asker(view: AccessView | None, *, manages: bool = False) -> Viewer:
    return Viewer({"flights": view}, manages)


class Bench:
    """A planner of one table."""

    def __init__(self) -> None:
        self.table: ServedTable = served(manifest=MANIFEST)
        self.planner = Planner(lambda name: self.table if name in {"flights", FLIGHTS} else None, CLOCK)

    def plan(self, sql: str, view: AccessView | None) -> PlannedQuery:
        return asyncio.run(self.planner.plan(sql, "", asker(view)))

    def error(self, sql: str, view: AccessView) -> str:
        with pytest.raises(MerlotError) as raised:
            self.plan(sql, view)
        return QueryException.of(raised.value).message


def values(expr: Expr | None) -> set[object]:
    """The constants that columns are compared with."""
    assert expr is not None
    calls = [node for node in walk(expr) if isinstance(node, Call) and isinstance(node.args[0], Column)]
    return {value for call in calls for value in literal_values(call.args[1:])}


def filter_of(plan: PlannedQuery) -> Expr | None:
    assert plan.tree is not None
    return plan.tree.leaf.filter


SQL = "SELECT COUNT(*) FROM flights"
STAGED = "SELECT a.carrier FROM flights a JOIN flights b ON a.delay = b.delay"


@pytest.mark.parametrize("sql", [SQL, STAGED, "SELECT carrier FROM flights WHERE delay > 5"])
def test_plans_are_shared_by_equal_views_and_never_mixed(sql: str) -> None:
    bench = Bench()
    whole = bench.plan(sql, WHOLE_TABLE)
    plans = [bench.plan(sql, view) for view in (AA, BB, MASKED if "delay" not in sql else AccessView(("delay > 1",)))]
    assert len({id(plan) for plan in (whole, *plans)}) == 4
    assert bench.plan(sql, AccessView(("carrier = 'AA'",))) is plans[0]
    assert bench.plan(sql, BB) is plans[1]
    assert bench.plan(sql, WHOLE_TABLE) is whole
    assert asyncio.run(bench.planner.plan(sql, "")) is whole
    with pytest.raises(AccessDeniedError, match="permission denied right=query table=flights"):
        bench.plan(sql, None)


def test_an_asker_whose_view_changes_gets_another_plan() -> None:
    bench, views = Bench(), {"flights": AA}
    changing = Viewer(views)
    first = asyncio.run(bench.planner.plan(SQL, "", changing))
    views["flights"] = BB
    assert values(filter_of(asyncio.run(bench.planner.plan(SQL, "", changing)))) == {"BB"}
    assert values(filter_of(first)) == {"AA"}


def test_templates_of_shapes_are_never_mixed() -> None:
    """The third query of a shape is filled into a template: it has its own asker's row filter, and its own constant."""
    bench = Bench()
    for number in range(5):
        for view, name in ((AA, "AA"), (BB, "BB"), (WHOLE_TABLE, None)):
            plan = bench.plan(f"SELECT COUNT(*) FROM flights WHERE delay = {number}", view)
            assert values(filter_of(plan)) == {number, name} - {None}
            assert plan.views == ({} if name is None else {FLIGHTS: view})
    assert bench.planner.counts.filled == 9


def test_a_constant_like_a_marker_of_templates_stays_in_its_row_filter() -> None:
    bench, view = Bench(), AccessView(("delay <> 1000003",))
    for number in (1, 2, 3, 1_000_003, 4):
        plan = bench.plan(f"SELECT COUNT(*) FROM flights WHERE Salary = {number}", view)
        assert values(filter_of(plan)) == {number, 1_000_003}


def test_a_row_filter_does_not_rest_on_default_values() -> None:
    """Whether nulls are handled is the asker's option; a row whose filter is NULL is seen in neither case."""
    bench, view = Bench(), AccessView(("carrier <> 'secret'",))
    off = filter_of(bench.plan(SQL, view))
    on = filter_of(bench.plan(f"SET enableNullHandling = true; {SQL}", view))
    assert on == Call("not_equals", off.args[0].args, off.type) if isinstance(off, Call) else False  # type: ignore[union-attr]
    assert isinstance(off, Call)
    assert [part.function for part in off.args if isinstance(part, Call)] == ["not_equals", "is_not_null"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT delay FROM flights", "unknown column name=delay"),
        ("SELECT dely FROM flights", "unknown column name=dely table=flights"),
        ("SELECT DELAY FROM flights", "unknown column name=DELAY table=flights"),
        ("SELECT flights.delay FROM flights", "unknown column name=flights.delay table=flights"),
        ("SELECT $docId FROM flights", "unknown column name=$docId table=flights"),
        ("SELECT $segmentName FROM flights", "unknown column name=$segmentName table=flights"),
        ("SELECT a.delay FROM flights a JOIN flights b ON a.carrier = b.carrier", "unknown column name=a.delay"),
        ("SELECT 1 FROM flights a JOIN flights b ON a.carrier = b.carrier WHERE a.$docId = 1", "name=a.$docId"),
        ("SELECT x.delay FROM (SELECT * FROM flights) x", "unknown column name=x.delay"),
        ("SELECT 1 FROM flights a JOIN flights b USING (delay)", "unknown column name=delay"),
    ],
)
def test_a_hidden_column_does_not_exist(sql: str, message: str) -> None:
    first, *_ = Bench().error(sql, MASKED).split("\n")
    assert message in first
    assert "did you mean" not in first


@pytest.mark.parametrize("form", ["SELECT * FROM flights", "SET useMultistageEngine = true; SELECT * FROM flights"])
def test_a_star_has_masks_and_no_hidden_column(form: str) -> None:
    plan = Bench().plan(form, MASKED)
    assert plan.tree is not None
    assert [output.label for output in plan.tree.finish.outputs] == ["carrier", "Salary", "at"]
    assert Column("Salary", plan.tree.leaf.work.columns[1].type) not in plan.tree.leaf.work.columns
    assert "delay" not in plan.tree.leaf.columns_read


def test_derived_columns_of_masked_and_hidden_columns() -> None:
    bench, hidden = Bench(), AccessView((), frozenset({"at"}))
    assert "unknown column" in bench.error("SELECT $at$DAY FROM flights", hidden)
    assert "unknown column" in bench.error("SELECT $at$DAY FROM flights", AccessView((), frozenset(), {"at": "'x'"}))
    plan = bench.plan("SELECT $at$DAY FROM flights", AccessView((), frozenset(), {"at": "CAST(0 AS TIMESTAMP)"}))
    assert plan.tree is not None
    assert plan.tree.leaf.columns_read == frozenset()


@pytest.mark.parametrize(
    "view",
    [
        AccessView(("nothing = 1",)),
        AccessView(("carrier =",)),
        AccessView(("carrier = 'AA' GROUP BY carrier",)),
        AccessView(("COUNT(*) > 1",)),
        AccessView(("carrier IN (SELECT carrier FROM flights)",)),
        AccessView(("carrier = 'AA'; SET enableNullHandling = true",)),
        AccessView(("carrier = 'AA') OR (1 = 1",)),
        united([AccessView(("carrier = 'AA') OR (1 = 1",)), BB]),
        united([BB, AccessView(("1 = 1) OR (carrier = 'AA'", "1 = 1"))]),
        AccessView(("$totalDocs > 1",)),
        AccessView((), frozenset(), {"delay": "Salary"}),
        AccessView((), frozenset(), {"delay": "delay FROM flights"}),
        AccessView((), frozenset(), {"delay": "SUM(delay)"}),
        AccessView((), frozenset(), {"delay": "delay, 1"}),
        AccessView((), frozenset(), {"delay": "*"}),
    ],
)
def test_a_view_that_does_not_fit_refuses_the_query_and_names_the_document(view: AccessView) -> None:
    for sql in (SQL, STAGED, "SELECT carrier FROM flights"):
        with pytest.raises(UnusableViewError) as raised:
            Bench().plan(sql, view)
        assert str(raised.value).startswith("the access document's filters or masks do not fit the table table=flights")
    assert check_view(view, Bench().table.schema) != []


def test_a_view_that_fits_has_no_problems() -> None:
    schema = Bench().table.schema
    assert check_view(AccessView((AA.row_filters[0], "at > AGO('P1D')")), schema) == []
    assert check_view(MASKED, schema) == []
    assert check_view(AccessView((), frozenset({"carier"}), {"dely": "1"}), schema) == [
        "hidden column does not exist column=carier",
        "masked column does not exist column=dely",
    ]
    every = frozenset(name.lower() for name in schema.names)
    assert check_view(AccessView((), every), schema) == [
        "all columns are hidden: grant no right to query the table instead"
    ]


def test_a_filter_of_the_moment_is_planned_anew() -> None:
    bench, view = Bench(), AccessView(("at > AGO('P1D')",))
    assert bench.plan(SQL, view) is not bench.plan(SQL, view)


def answer_of(plan: PlannedQuery, viewer: Viewer, *exceptions: QueryException) -> BrokerAnswer:
    stats = QueryStats(num_docs_scanned=3, num_entries_scanned_in_filter=90, num_segments_processed=4, total_docs=900)
    answer = BrokerAnswer(request_id="1", client_request_id=None, broker_id="b", stats=stats, exceptions=exceptions)
    answer.total_docs = answer.num_segments_pruned_by_broker = 7
    conceal(answer, plan, viewer)
    return answer


def test_an_answer_shows_no_statistics_of_other_rows_and_no_text_of_an_error_about_values() -> None:
    plan = Bench().plan(SQL, AA)
    failed = named(QueryErrorCode.QUERY_EXECUTION, "no number: 'secret'")
    late = named(QueryErrorCode.EXECUTION_TIMEOUT, "late")
    answer = answer_of(plan, asker(AA), failed, late)
    assert answer.rls_filters_applied
    assert answer.stats == QueryStats(num_docs_scanned=3)
    assert (answer.total_docs, answer.num_segments_pruned_by_broker) == (0, 0)
    assert [exception.code for exception in answer.exceptions] == [200, 250]
    assert "secret" not in answer.exceptions[0].message
    assert answer.exceptions[1] == late
    managed = answer_of(plan, asker(AA, manages=True), failed)
    assert managed.rls_filters_applied
    assert (managed.total_docs, managed.exceptions) == (7, (failed,))
    assert not answer_of(Bench().plan(SQL, MASKED), asker(MASKED)).rls_filters_applied


def test_explain_tells_of_a_filter_but_not_which() -> None:
    view = AccessView(AA.row_filters, frozenset(), MASKED.masks)
    for sql in (f"EXPLAIN PLAN FOR {SQL}", f"EXPLAIN PLAN FOR {STAGED}"):
        plan = Bench().plan(sql, view)
        assert is_concealed(plan, asker(view))
        assert not is_concealed(plan, asker(view, manages=True))
        texts = [str(row[0]) for row in concealed_plan(plan).rows]
        assert texts[1:] == [
            "SCATTER(table:flights)",
            "ROW_FILTER(table:flights,predicate:withheld)",
            "COLUMN_MASKS(table:flights,expressions:withheld)",
        ]


def test_an_unknown_column_is_unknown_for_everybody() -> None:
    with pytest.raises(UnknownColumnError):
        Bench().plan("SELECT x FROM flights", AA)
