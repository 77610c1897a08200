"""Plan logged queries as servers run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from merlot.errors import InvalidInputError
from merlot.functions.instants import Moment
from merlot.ids import raw_name
from merlot.query.plan.binding import bind
from merlot.query.plan.derived import Computed, derived_columns_of, with_columns
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Leaf
from merlot.spec.schema import TableSchema
from merlot.sql.parse import one_stage, parse_statement
from merlot.sql.query_options import with_nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizedQuery:
    """Queries that differ only in their constants, as brokers logged them or a user wrote them down."""

    normal: str
    texts: tuple[str, ...]
    """Texts with their constants; empty if the log keeps none."""
    options: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    time_ms: float = 0.0
    """Total time of all of them; 0 if unknown."""
    num_segments: float = 0.0
    """Segments that all of them read, in total; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Question:
    """Text and plan of a query, and how often queries like it were asked."""

    sql: str
    leaf: Leaf
    count: float
    segments_each: float
    """Segments that servers read for one query; 0 if unknown."""
    time_ms: float
    """Total time of these queries; 0 if unknown."""
    derived: frozenset[Computed] = frozenset()
    """Derived columns that the query computes."""

    @property
    def form(self) -> Leaf:
        """Leaf for segments that store the derived columns."""
        return with_columns(self.leaf, self.derived) if self.derived else self.leaf


@dataclass(frozen=True, slots=True)
class UnplannedQuery:
    """A query that is left out, and why."""

    normal: str
    why: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries of a table that could be planned, and queries that could not."""

    questions: tuple[Question, ...]
    unread: tuple[UnplannedQuery, ...]


def workload(
    log: Iterable[NormalizedQuery], table: str, schema: TableSchema, now_ms: int, *, null_handling: bool = False
) -> Workload:
    """Plan the logged queries of a table. table: its raw name."""
    questions: list[Question] = []
    unread: list[UnplannedQuery] = []
    for logged in log:
        if not logged.texts:
            unread.append(UnplannedQuery(logged.normal, "its log keeps no constants"))
        for text in logged.texts:
            try:
                options = with_nulls(logged.options, null_handling=null_handling)
                leaf = _leaf(text, options, table, schema, now_ms)
            except InvalidInputError as error:
                unread.append(UnplannedQuery(logged.normal, str(error)))
                break
            questions.append(_question(logged, text, leaf, derived_columns_of(leaf, None, schema)))
    return Workload(tuple(questions), tuple(unread))


def _question(logged: NormalizedQuery, text: str, leaf: Leaf, derived: frozenset[Computed]) -> Question:
    """Return the question of one text, with its share of the totals of all texts."""
    share = 1 / len(logged.texts)
    each = logged.num_segments / logged.count if logged.count else 0.0
    return Question(text, leaf, logged.count * share, each, logged.time_ms * share, derived)


def _leaf(text: str, options: Mapping[str, str], table: str, schema: TableSchema, now_ms: int) -> Leaf:
    statement = parse_statement(text)
    if statement.has_stages:
        raise InvalidInputError("it has several stages")
    parsed = one_stage(statement)
    if parsed.explain:
        raise InvalidInputError("it is an EXPLAIN")
    if parsed.table is None or raw_name(parsed.table) != table:
        raise InvalidInputError(f"it is not of the table {table}")
    return plan(bind(parsed, schema, options, Moment(now_ms))).leaf
