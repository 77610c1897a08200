"""Logged queries as plans of what servers run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from merlot.errors import InvalidInputError
from merlot.functions.instants import Moment
from merlot.ids import raw_name
from merlot.query.plan.binding import bind
from merlot.query.plan.derived import Computed, asked_for, with_columns
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Leaf
from merlot.spec.schema import TableSchema
from merlot.sql.parse import one_stage, parse_statement
from merlot.sql.query_options import with_nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedQuery:
    """Queries of one normal form, as brokers logged them or a user wrote them down."""

    normal: str
    texts: tuple[str, ...]
    """With constants; none where the log keeps none."""
    options: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    time_ms: float = 0.0
    """Of all of them; 0 if nobody knows."""
    num_segments: float = 0.0
    """Looked at by all of them; 0 if nobody knows."""


@dataclass(frozen=True, slots=True)
class Question:
    """One text, and how often such are asked."""

    sql: str
    leaf: Leaf
    count: float
    segments_each: float
    """Segments that servers look at for one; 0 if nobody knows."""
    time_ms: float
    """That all of them took; 0 if nobody knows."""
    derived: frozenset[Computed] = frozenset()
    """Derived columns that it computes."""

    @property
    def form(self) -> Leaf:
        """What it would ask of segments that have these."""
        return with_columns(self.leaf, self.derived) if self.derived else self.leaf


@dataclass(frozen=True, slots=True)
class Unread:
    """A query that is left out."""

    normal: str
    why: str


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of a table."""

    questions: tuple[Question, ...]
    unread: tuple[Unread, ...]


def workload(
    log: Iterable[LoggedQuery], table: str, schema: TableSchema, now_ms: int, *, null_handling: bool = False
) -> Workload:
    """The plans of what was asked of a table, by its raw name."""
    questions: list[Question] = []
    unread: list[Unread] = []
    for logged in log:
        if not logged.texts:
            unread.append(Unread(logged.normal, "its log keeps no constants"))
        for text in logged.texts:
            try:
                options = with_nulls(logged.options, null_handling=null_handling)
                leaf = _leaf(text, options, table, schema, now_ms)
            except InvalidInputError as error:
                unread.append(Unread(logged.normal, str(error)))
                break
            questions.append(_question(logged, text, leaf, asked_for(leaf, None, schema)))
    return Workload(tuple(questions), tuple(unread))


def _question(logged: LoggedQuery, text: str, leaf: Leaf, derived: frozenset[Computed]) -> Question:
    """One of the texts, with its part of what all of them came to."""
    part = 1 / len(logged.texts)
    each = logged.num_segments / logged.count if logged.count else 0.0
    return Question(text, leaf, logged.count * part, each, logged.time_ms * part, derived)


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
