"""Engine over Arrow: DuckDB, in memory, with bounds on memory, disk, threads, rows and time.

It reaches no file and no network but its spill folder, loads no extension, and runs no text that a user wrote
(`engine_sql`). A query has an instance of DuckDB to itself (`engine_instances`), so that its memory is bounded
separately. `run` blocks: call it in a thread; `interrupt` stops it from any other.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError, MerlotError, UnavailableError, first_line
from merlot.query.answer.result import ResultTable
from merlot.query.stages import engine_messages
from merlot.query.stages.engine_calls import MAX_DIGITS, EngineFunction, engine_type, without_end_zeros
from merlot.query.stages.engine_instances import INSTANCES, EngineFailedError, EngineLimits
from merlot.query.stages.engine_sql import EngineQuery
from merlot.query.stages.leaves import StageLeaf
from merlot.tree.errors import UnsupportedSqlError
from merlot.tree.types import BIG_DECIMAL, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError, QueryArithmeticError
from merlot.vectors.vector import arrow_type

BATCH_ROWS: Final = 65_536
SMALL_ROWS: Final = 2_048
"""Most rows of all relations of a query that one thread computes: a second one has nothing to do, and waking it takes a
quarter of the CPU time of a small join (13 ms instead of 10)."""


class StageError(InvalidInputError):
    """Raised if the engine refused or failed a query (Pinot's QUERY_EXECUTION)."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION


class StageInterruptedError(UnavailableError):
    """Raised if the run was interrupted, by the deadline or by its caller."""

    code: ClassVar[int] = QueryErrorCode.EXECUTION_TIMEOUT


class EngineRun:
    """One run of a query, whose answer may have at most `max_rows` rows."""

    def __init__(self, limits: EngineLimits, *, max_rows: int = 10_000_000) -> None:
        self._limits = limits
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._connection: Any = None
        self._is_interrupted = False
        self._failure: MerlotError | None = None

    def interrupt(self) -> None:
        """End the run, now or as soon as it begins."""
        with self._lock:
            self._is_interrupted = True
            if self._connection is not None:
                self._connection.interrupt()

    def run(self, query: EngineQuery, relations: Mapping[str, pa.Table]) -> ResultTable:
        """Return the answer. Raises LimitExceededError, QueryArithmeticError, StageError, StageInterruptedError, and
        the errors of our functions."""
        try:
            with INSTANCES.session(_limits_for(relations, self._limits)) as connection:
                try:
                    return self._answer(connection, query, relations)
                finally:
                    with self._lock:
                        self._connection = None  # before the session closes: a closed connection refuses interrupts
        except (EngineFailedError, OSError, pa.ArrowException) as error:
            # A failure past the first rows comes from the reader, as an Arrow error with the same text.
            if self._failure is not None:
                raise self._failure from error
            raise self._translated(error) from error

    def _answer(self, connection: Any, query: EngineQuery, relations: Mapping[str, pa.Table]) -> ResultTable:
        for function in query.functions:
            self._register(connection, function)
        for name, table in relations.items():
            connection.register(name, table)
        with self._lock:
            self._connection = connection
            if self._is_interrupted:
                raise StageInterruptedError("query was stopped before its stages began")
        reader = connection.sql(query.sql).to_arrow_reader(BATCH_ROWS)
        pieces: list[list[pa.Array]] = [[] for _ in query.types]
        num_rows = 0
        for batch in reader:
            self._check()
            num_rows += batch.num_rows
            account.current().hold("rows of stages", batch.nbytes)
            if num_rows > self._max_rows:
                raise LimitExceededError(f"answer has too many rows limit={self._max_rows}")
            for arrays, column, type_ in zip(pieces, batch.columns, query.types, strict=True):
                arrays.append(from_engine(column, type_))
        for function in query.functions:
            # A function belongs to the whole instance, so the next query would see it.
            connection.remove_function(function.name)
        columns = [
            pa.chunked_array(arrays, arrow_type(type_)).combine_chunks()
            for arrays, type_ in zip(pieces, query.types, strict=True)
        ]
        return ResultTable(query.labels, query.types, tuple(columns))

    def _register(self, connection: Any, function: EngineFunction) -> None:
        helping = account.Helping()

        def call(*columns: Any) -> Any:
            try:
                return helping(lambda: function.call(columns, self._check))
            except MerlotError as error:
                self._failure = error
                raise
            except Exception as error:
                self._failure = account.out_of_memory(error)
                raise

        names = [f"x{number}" for number in range(len(function.parameter_types))]
        positional = inspect.Parameter.POSITIONAL_ONLY
        signature = inspect.Signature([inspect.Parameter(name, positional) for name in names])
        call.__signature__ = signature  # type: ignore[attr-defined] # the engine counts parameters by it
        connection.create_function(
            function.name,
            call,
            function.parameter_types,
            engine_type(function.type),
            type="arrow",
            null_handling="special",
        )

    def _check(self) -> None:
        if self._is_interrupted:
            raise StageInterruptedError("query was stopped in its stages")

    def _translated(self, error: Exception) -> MerlotError:
        """Return our error for an error of the engine, whose text begins with its kind."""
        text = first_line(error)
        kind, _, reason = text.partition(" Error: ")
        match kind:
            case "INTERRUPT":
                return StageInterruptedError("query was stopped in its stages")
            case "Out of Memory":
                sizes = f"memory={self._limits.memory_bytes} spill={self._limits.spill_bytes}"
                advice = "filter or group the joined tables first, or raise --stage-memory or --stage-spill"
                return LimitExceededError(f"stages need more than they may take {sizes}: {advice}")
            case "Out of Range" | "Conversion":
                return QueryArithmeticError(engine_messages.of_number(text))
            case "Binder" | "Parser" | "Not implemented":
                # Constructs that our binder accepts and the engine does not, such as a window within a window.
                return UnsupportedSqlError(f"in stages above leaves: {reason or text}")
        if "More than one row returned by a subquery" in text:
            return StageError("more than one row returned by a subquery for a value")
        return StageError(f"stages failed: {text}")


def _limits_for(relations: Mapping[str, pa.Table], limits: EngineLimits) -> EngineLimits:
    """Return the bounds of a run, with one thread for small relations."""
    is_small = sum(table.num_rows for table in relations.values()) <= SMALL_ROWS
    return replace(limits, threads=1) if is_small else limits


def relation_of(leaf: StageLeaf, answer: ResultTable) -> pa.Table:
    """Return a leaf's answer as the engine reads it."""
    columns = [to_engine(column, type_) for column, type_ in zip(answer.columns, leaf.types, strict=True)]
    return pa.Table.from_arrays(columns, names=[f"c{number}" for number in range(len(columns))])


def to_engine(column: pa.ChunkedArray | pa.Array, type_: SqlType) -> pa.ChunkedArray | pa.Array:
    """Return a leaf's column as the engine reads it: BIG_DECIMAL becomes a DECIMAL with the digits of its values."""
    if type_.base is not TypeName.BIG_DECIMAL or type_.is_array:
        return column.cast(arrow_type(type_)) if column.type != arrow_type(type_) else column
    parts = pc.split_pattern(pc.utf8_ltrim(column, characters="-0"), ".", max_splits=1)
    whole = pc.max(pc.utf8_length(pc.list_element(parts, 0))).as_py() if len(column) else 0
    has_point = pc.match_substring(column, ".")
    lengths = pc.subtract(pc.utf8_length(column), pc.add(pc.find_substring(column, "."), 1))
    fraction = pc.max(pc.if_else(has_point, lengths, 0)).as_py() or 0
    digits = max((whole or 0) + fraction, 1)
    if digits > MAX_DIGITS:
        text = f"BIG_DECIMAL has too many digits for stages above leaves got={digits} limit={MAX_DIGITS}"
        raise LimitExceededError(text)
    return column.cast(pa.decimal128(digits, fraction))


def from_engine(column: pa.Array, type_: SqlType) -> pa.Array:
    """Return a column of the engine's answer, of type `arrow_type(type_)`."""
    target = arrow_type(type_)
    if type_ == BIG_DECIMAL and pa.types.is_decimal128(column.type):
        return without_end_zeros(_digits(column))
    if pa.types.is_null(target):
        return pa.nulls(len(column))
    return column if column.type == target else column.cast(target)


def _digits(column: pa.Array) -> pa.Array:
    """Return DECIMALs as texts with all digits of their scale. Arrow writes small decimals with an exponent, but never
    whole numbers, so the digits are cast as a whole number."""
    scale = column.type.scale
    whole = pa.Array.from_buffers(
        pa.decimal128(MAX_DIGITS, 0), len(column), column.buffers(), column.null_count, column.offset
    )
    texts = whole.cast(pa.string())
    if scale <= 0:
        return texts
    padded = pc.utf8_lpad(pc.utf8_ltrim(texts, characters="-"), scale + 1, padding="0")
    parts = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, parts[0], ""), parts[1], ".").cast(pa.string())
