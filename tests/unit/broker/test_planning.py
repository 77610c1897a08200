"""Plans are remembered by text, for one revision of their table, within bounds."""

import asyncio
import gc
import threading
import weakref
from dataclasses import replace

import pytest

from merlot.broker.planning.planner import PlanCounts, Planner
from merlot.broker.planning.threads import MAX_WAITING, PlanningBusyError
from merlot.broker.query_errors import QueryException
from merlot.broker.routing.routes import RoutingInputs, build
from merlot.broker.tables import ServedTable
from merlot.clock import SystemClock
from merlot.cluster.records import RootRecord
from merlot.cluster.segments.view import TableView
from merlot.errors import MerlotError, NotFoundError
from merlot.ids import TableName
from merlot.query.plan.expressions import children, walk
from merlot.spec.manifest import load
from merlot.sql.budget import PlanningTimeoutError
from merlot.sql.query_options import QueryOptionError
from merlot.testing.clock import FakeClock
from merlot.testing.patience import PATIENCE_S
from merlot.tree.errors import UnknownColumnError
from merlot.tree.nodes import Call, Literal

CLOCK = FakeClock()
FLIGHTS = TableName("flights_OFFLINE")
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec:
  limits: {timeoutMs: 700}
  schema:
    fields:
      - {name: carrier, type: STRING}
"""


def served(revision: int = 1, manifest: str = MANIFEST) -> ServedTable:
    view = TableView(FLIGHTS, RootRecord(), 1, {})
    snapshot = build(RoutingInputs(view=view, reports={}, standings={}, now_ms=0))
    return ServedTable(FLIGHTS, revision, load(manifest)[0].spec, snapshot)


class Tables:
    """Finds flights only."""

    def __init__(self) -> None:
        self.flights: ServedTable | None = served()

    def find(self, name: str) -> ServedTable | None:
        return self.flights if name in {"flights", FLIGHTS} else None


async def test_same_text_has_the_same_plan() -> None:
    planner = Planner(Tables().find, CLOCK)
    first = await planner.plan("SELECT carrier FROM flights", "")
    assert await planner.plan("SELECT carrier FROM flights", "") is first
    assert await planner.plan("SELECT carrier FROM flights", "timeoutMs=5") is not first


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT carrier,\n  «carier» FROM flights", "unknown column"),
        ("SELECT «flights.carier» FROM flights", "unknown column"),
        ("SELECT carrier AS k FROM flights WHERE k = 'AA' AND «x» = 1", "unknown column"),
        ("SELECT carrier FROM flights WHERE carrier = 'foo(' AND «foo»(carrier) = 1", "function FOO"),
        ("SELECT UPPER(«SUM»(carrier)) FROM flights", "sum cannot take STRING"),
        ("SELECT carrier FROM flights WHERE «ABS»(carrier) = 1", "abs needs numbers"),
        ("SELECT carrier FROM flights WHERE «COUNT»(*) > 1", "cannot use an aggregate"),
        ("SELECT carrier /* a /* nested */ comment */, «carier» FROM flights OPTION(timeoutMs=5)", "unknown column"),
        ("SET timeoutMs = 5;\nSELECT «carier» FROM flights", "unknown column"),
        ("SELECT 1 FROM flights a JOIN flights b ON «b.carier» = 'AA'", "unknown column"),
        ("SELECT carrier FROM flights WHERE carrier IN (SELECT «carier» FROM flights)", "unknown column"),
        ("SELECT v.x FROM (SELECT carrier AS x FROM flights) v WHERE «carrier» = 'AA'", "unknown column"),
        ("SELECT carrier FROM flights WHERE carrier = «=» 'AA'", "expected an expression"),
        ("SELECT carrier FROM flights «TABLESAMPLE» BERNOULLI (5)", "TABLESAMPLE"),
        ("SELECT carrier FROM flights GROUP BY «ALL»", "GROUP BY ALL"),
        ("SELECT «TRY_CAST»(carrier AS INT) FROM flights", "TRY_CAST"),
        ("SELECT 1 «&» 2 FROM flights", "operator &"),
    ],
)
async def test_an_error_shows_the_word_that_it_is_about(sql: str, word: str) -> None:
    before, _, after = sql.partition("«")
    with pytest.raises(MerlotError) as raised:
        await Planner(Tables().find, CLOCK).plan(sql.replace("«", "").replace("»", ""), "")
    message, line, caret = QueryException.of(raised.value).message.split("\n")
    assert word in message
    start = before.rpartition("\n")[2]
    assert line == start + after.replace("»", "").partition("\n")[0]
    assert caret == " " * len(start) + "^"


async def test_a_long_line_is_cut_around_the_word() -> None:
    sql = f"SELECT {'carrier, ' * 30}\tcarier, {'carrier, ' * 30}carrier FROM flights"
    with pytest.raises(MerlotError) as raised:
        await Planner(Tables().find, CLOCK).plan(sql, "")
    _, line, caret = QueryException.of(raised.value).message.split("\n")
    assert line[caret.index("^") :].startswith("carier, carrier, ")
    assert (line[0], line[-1]) == ("…", "…")
    assert len(line) < 120
    assert "\t" not in line


async def test_a_plan_of_now_is_of_its_moment() -> None:
    clock = FakeClock()
    planner = Planner(Tables().find, clock)
    for _ in range(4):
        clock.advance(60)
        plan = await planner.plan("SELECT count(*) FROM flights WHERE NOW() - 1 > LENGTH(carrier) + AGO('PT1H')", "")
        assert plan.tree is not None
        assert isinstance(plan.tree.leaf.filter, Call)
        operands = [operand for node in walk(plan.tree.leaf.filter) for operand in children(node)]
        literals = [operand.value for operand in operands if isinstance(operand, Literal)]
        assert sorted(map(int, literals)) == [clock.now_ms() - 3_600_000, clock.now_ms() - 1]
    constant = await planner.plan("SELECT NOW()", "")
    clock.advance(1)
    assert await planner.plan("SELECT NOW()", "") is not constant


@pytest.mark.parametrize("revision", [2, 1], ids=["changed", "deleted and created again"])
async def test_changed_table_makes_a_new_plan(revision: int) -> None:
    tables = Tables()
    planner = Planner(tables.find, CLOCK)
    with pytest.raises(UnknownColumnError):
        await planner.plan("SELECT origin FROM flights", "")
    first = await planner.plan("SELECT * FROM flights", "")
    tables.flights = served(revision, MANIFEST + "      - {name: origin, type: STRING}\n")
    second = await planner.plan("SELECT * FROM flights", "")
    assert [len(plan.tree.finish.outputs) for plan in (first, second) if plan.tree] == [1, 2]


async def test_deleted_table_has_no_plan() -> None:
    tables = Tables()
    planner = Planner(tables.find, CLOCK)
    await planner.plan("SELECT * FROM flights", "")
    tables.flights = None
    with pytest.raises(NotFoundError):
        await planner.plan("SELECT * FROM flights", "")


async def test_timeout_is_the_querys_own_or_the_tables() -> None:
    planner = Planner(Tables().find, CLOCK)
    assert (await planner.plan("SELECT * FROM flights", "")).timeout_ms == 700
    assert (await planner.plan("SELECT * FROM flights", "timeoutMs=9")).timeout_ms == 9
    assert (await planner.plan("SET timeoutMs=8; SELECT * FROM flights", "timeoutMs=9")).timeout_ms == 8


async def test_no_query_takes_longer_than_its_table_allows() -> None:
    planner = Planner(Tables().find, CLOCK)
    for sql, options in (
        ("SELECT * FROM flights", "timeoutMs=701"),
        ("SET timeoutMs=701; SELECT * FROM flights", "timeoutMs=9"),
        ("SELECT * FROM flights OPTION(timeoutMs=701)", ""),
        ("SET useMultistageEngine=true; SELECT * FROM flights", "timeoutMs=701"),
        ("SELECT a.carrier FROM flights a, flights b", "timeoutMs=701"),
    ):
        plan = await planner.plan(sql, options)
        assert plan.timeout_ms == 700
        assert plan.wishes.warnings == ("timeoutMs=701 is above the table's limits.timeoutMs=700, which applies",)
    for sql, options in (
        ("SELECT * FROM flights OPTION(timeoutMs=" + "9" * 5_000 + ")", ""),
        ("SELECT 1", "timeoutMs=" + "9" * 400),
        ("SELECT 1", "timeoutMs=0"),
    ):
        with pytest.raises(QueryOptionError, match="timeoutMs") as caught:
            await planner.plan(sql, options)
        assert len(str(caught.value)) < 200


async def test_table_says_whether_its_queries_see_nulls_and_a_query_may_say_otherwise() -> None:
    tables = Tables()
    tables.flights = served(manifest=MANIFEST.replace("spec:", "spec:\n  nullHandling: true"))
    planner = Planner(tables.find, CLOCK)
    for prefix in ("", "SET useMultistageEngine=true; "):
        for text, options, sees_nulls in (
            ("SELECT carrier FROM flights", "", True),
            ("SELECT carrier FROM flights LIMIT 4", "enableNullHandling=false", False),
            ("SELECT carrier FROM flights LIMIT 5", "ENABLENULLHANDLING=false", False),
            ("SET enableNullHandling=false; SELECT carrier FROM flights", "", False),
            ("SELECT carrier FROM flights OPTION(enableNullHandling=true)", "enableNullHandling=false", True),
        ):
            plan = await planner.plan(prefix + text, options)
            leaves = [plan] if plan.stages is None else list(plan.stages.leaves.values())
            assert [leaf.tree.leaf.work.null_handling for leaf in leaves if leaf.tree] == [sees_nulls], text
            assert plan.wishes.warnings == ()


async def test_several_tables_see_nulls_if_one_of_them_says_so() -> None:
    manifest = MANIFEST.replace("spec:", "spec:\n  nullHandling: true")
    other = replace(served(manifest=manifest), name=TableName("others_OFFLINE"))

    def find(name: str) -> ServedTable | None:
        return {"flights": served(), "others": other}.get(name)

    planner = Planner(find, CLOCK)
    for text, sees_nulls in (
        ("SELECT a.carrier FROM flights a JOIN others b ON a.carrier = b.carrier", True),
        ("SELECT a.carrier FROM flights a JOIN flights b ON a.carrier = b.carrier", False),
        ("SET enableNullHandling=false; SELECT a.carrier FROM flights a, others b", False),
    ):
        plan = await planner.plan(text, "")
        assert plan.stages is not None
        trees = [leaf.tree for leaf in plan.stages.leaves.values()]
        assert [tree.leaf.work.null_handling for tree in trees if tree] == [sees_nulls] * 2


async def test_count_that_counts_nulls_too_is_warned_of() -> None:
    planner = Planner(Tables().find, CLOCK)
    for item, is_warned in (
        ("COUNT(CASE WHEN carrier > 'B' THEN 1 END)", True),
        ("count((case when carrier > 'B' then 1 else null end))", True),
        ("COUNT(NULLIF(carrier, 'B'))", True),
        ("COUNT(CASE WHEN carrier > 'B' THEN 1 ELSE 0 END)", False),
        ("SUM(CASE WHEN carrier > 'B' THEN 1 END)", False),
        ("COUNT(DISTINCT CASE WHEN carrier > 'B' THEN 1 END)", False),
        ("COUNT(carrier), 'NULLIF CASE'", False),
    ):
        plan = await planner.plan(f"SELECT {item} FROM flights", "")
        assert bool(plan.wishes.warnings) == is_warned, item
        assert (await planner.plan(f"SELECT {item} FROM flights", "enableNullHandling=true")).wishes.warnings == ()


LONG = "SELECT carrier FROM flights WHERE " + " OR ".join(f"carrier > '{number}'" for number in range(5_000))
PATIENT = f"timeoutMs={int(PATIENCE_S * 1000)}"


class HeldTables(Tables):
    """Finds no table before it is told to: planning threads wait there, in the middle of a plan."""

    def __init__(self) -> None:
        super().__init__()
        self.flights = served(manifest=MANIFEST.replace("limits: {timeoutMs: 700}", "limits: {}"))
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def find(self, name: str) -> ServedTable | None:
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        return super().find(name)


async def test_a_client_that_hangs_up_ends_the_planning() -> None:
    tables = HeldTables()
    planner = Planner(tables.find, SystemClock())
    planning = asyncio.create_task(planner.plan(LONG, PATIENT))
    assert await asyncio.to_thread(tables.is_asked.wait, PATIENCE_S)
    waiting = asyncio.create_task(planner.plan(LONG + " ", PATIENT))
    await asyncio.sleep(0)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    tables.may_answer.set()
    assert (await planner.plan(LONG, PATIENT)).table == FLIGHTS
    planner.close()


async def test_planning_ends_at_the_deadline_though_a_thread_is_at_it() -> None:
    tables = HeldTables()
    planner = Planner(tables.find, SystemClock())
    with pytest.raises(PlanningTimeoutError):
        await planner.plan(LONG, "timeoutMs=50")
    tables.may_answer.set()
    planner.close()


async def test_short_texts_do_not_wait_for_long_ones_and_too_many_long_ones_are_refused() -> None:
    tables = HeldTables()
    planner = Planner(tables.find, SystemClock())
    texts = [LONG + " " * number for number in range(MAX_WAITING)]
    waiting = [asyncio.create_task(planner.plan(text, "")) for text in texts]
    await asyncio.sleep(0)
    with pytest.raises(PlanningBusyError):
        await planner.plan(LONG + "\n", PATIENT)
    assert (await planner.plan("SELECT 1", "")).constant is not None
    for task in waiting:
        task.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*waiting, return_exceptions=True)
    )
    tables.may_answer.set()
    planner.close()


async def test_least_recently_used_plans_make_room() -> None:
    planner = Planner(Tables().find, CLOCK, max_plans=2)
    texts = [f"SELECT carrier FROM flights LIMIT {limit}" for limit in range(3)]
    first = await planner.plan(texts[0], "")
    second = await planner.plan(texts[1], "")
    assert await planner.plan(texts[0], "") is first
    await planner.plan(texts[2], "")
    assert await planner.plan(texts[0], "") is first
    assert await planner.plan(texts[1], "") is not second


async def test_fifty_dashboards_do_not_evict_one_another() -> None:
    """Twelve panels each, which a time picker asks anew for another range and a reload for the same."""
    planner = Planner(Tables().find, CLOCK)
    num_panels = 50 * 12

    async def ask(carrier: str) -> None:
        for panel in range(num_panels):
            await planner.plan(f"SELECT COUNT(*) AS p{panel} FROM flights WHERE carrier = '{carrier}'", "")

    for carrier in ("AA", "B6", "DL", "UA", "UA", "AA"):
        await ask(carrier)
    assert planner.counts == PlanCounts(made=2 * num_panels, filled=3 * num_panels, cached=num_panels)


async def test_long_texts_do_not_fill_the_memory() -> None:
    planner = Planner(Tables().find, CLOCK, max_bytes=1000)
    long = "SELECT carrier FROM flights WHERE carrier IN (" + ", ".join(f"'{number}'" for number in range(2000)) + ")"
    plan = await planner.plan(long, "")
    assert await planner.plan(long, "") is not plan


class Options(str):
    """Options of a request that a weak reference can follow."""


@pytest.mark.parametrize(
    ("column", "options"),
    [("carrier", "x" * 20_000), ("carier", "timeoutMs=5")],
    ids=["options too long", "unknown column"],
)
async def test_nothing_is_kept_of_a_query_that_cannot_be_planned(column: str, options: str) -> None:
    planner = Planner(Tables().find, CLOCK)
    text = Options(options)
    kept = weakref.ref(text)
    with pytest.raises(MerlotError):
        await planner.plan(f"SELECT {column} FROM flights WHERE carrier = 'AA'", text)
    del text
    gc.collect()
    assert kept() is None


class Followed(ServedTable):
    """A table that a weak reference can follow."""


async def test_a_plan_of_several_stages_keeps_no_routes_in_memory() -> None:
    tables, table = Tables(), served()
    tables.flights = Followed(table.name, table.revision, table.spec, table.snapshot)
    kept = weakref.ref(tables.flights)
    planner = Planner(tables.find, CLOCK)
    sql = "SELECT a.carrier FROM flights a JOIN flights b ON a.carrier = b.carrier"
    plan = await planner.plan(sql, "")
    assert plan.stages is not None
    tables.flights = table
    assert await planner.plan(sql, "") is plan
    gc.collect()
    assert kept() is None


async def test_a_switch_that_is_neither_on_nor_off_fails_the_query_however_it_is_given() -> None:
    planner = Planner(Tables().find, CLOCK)
    for sql, options in (
        ("SET enableNullHandling = 'yes'; SELECT carrier FROM flights", ""),
        ("SELECT carrier FROM flights", "enableNullHandling=1"),
        ("SELECT 1", "skipSegmentPruning=on"),
    ):
        with pytest.raises(QueryOptionError, match="must be true or false"):
            await planner.plan(sql, options)


async def test_shapes_of_a_table_that_sees_nulls_have_templates() -> None:
    tables = Tables()
    tables.flights = served(manifest=MANIFEST.replace("spec:", "spec:\n  nullHandling: true"))
    planner = Planner(tables.find, CLOCK)
    for number in range(5):
        plan = await planner.plan(f"SELECT COUNT(*) FROM flights WHERE carrier = 'x{number}'", "")
        assert plan.tree is not None
        assert plan.tree.leaf.work.null_handling
    assert planner.counts == PlanCounts(made=2, filled=3)


async def test_every_plan_of_a_shape_tells_of_its_options() -> None:
    planner = Planner(Tables().find, CLOCK)
    for number in range(5):
        sql = f"SET somthing = 1; SELECT carrier FROM flights WHERE carrier = 'x{number}'"
        wishes = (await planner.plan(sql, "dropResults=TRUE;clientQueryId=mine")).wishes
        assert (wishes.drops_rows, wishes.client_request_id) == (True, "mine")
        assert wishes.warnings == ("unknown query option ignored name=somthing",)
    plain = (await planner.plan("SELECT carrier FROM flights", "dropResults=false")).wishes
    assert (plain.drops_rows, plain.client_request_id, plain.warnings) == (False, None, ())
