"""Fields of a message that are no columns have the type that their use asks for; what has none is refused at apply."""

import io
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from tests import budget
from tests.contracts.ingestion.random_filters import AVRO, message, predicate

from merlot.errors import InvalidInputError
from merlot.ingest import row_expressions, stream_checks
from merlot.ingest.stream import Pipeline, StreamRows
from merlot.spec.table import TableSpec
from merlot.streams.protocol import Messages

NUM_FILTERS = budget.count("MERLOT_STREAM_FILTERS", quick=100, every=1_500, fuzz=20_000)
FIELDS = [
    {"name": "id", "type": "LONG"},
    {"name": "word", "type": "STRING"},
    {"name": "other", "type": "STRING"},
    {"name": "number", "type": "LONG"},
]


def spec_of(fields: Sequence[Mapping[str, Any]] = FIELDS, **stream: Any) -> TableSpec:
    declared = {"type": "files", "topic": "t", **stream}
    return TableSpec.model_validate({"schema": {"fields": fields}, "ingestion": {"stream": declared}})


def read(spec: TableSpec, values: Sequence[bytes]) -> StreamRows:
    declared = spec.ingestion.stream
    assert declared is not None
    sent = Messages(
        values=pa.array(values, pa.large_binary()),
        offsets=np.arange(len(values), dtype=np.int64),
        timestamps_ms=np.full(len(values), -1, dtype=np.int64),
        next_offset=len(values),
    )
    return Pipeline(spec, declared, 0).rows(sent)


def rows(spec: TableSpec, *sent: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = read(spec, [json.dumps(one).encode() for one in sent])
    assert found.bad.by_reason == {}
    listed: list[dict[str, Any]] = found.rows.to_pylist()
    return listed


def avro(row: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(dict(AVRO)), row)
    return sink.getvalue()


def test_random_filters_keep_the_same_messages_in_json_and_in_avro() -> None:
    draw = random.Random(budget.seed())
    sent = [message(draw, number) for number in range(60)]
    for _ in range(NUM_FILTERS):
        wanted = predicate(draw)
        expected = [one["id"] for one in sent if wanted.verdict(one) is True]
        for decoder, write in (
            ({"type": "JSON"}, lambda one: json.dumps(one).encode()),
            ({"type": "AVRO", "avroSchema": json.dumps(AVRO)}, avro),
        ):
            found = read(spec_of(FIELDS[:1], decoder=decoder, filter=wanted.sql), [write(one) for one in sent])
            assert found.bad.by_reason == {}, wanted.sql
            assert found.rows.column("id").to_pylist() == expected, (wanted.sql, decoder["type"])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("NOT (age < 18)", [2, 3]),
        ("age * 2 > 30", [2, 3]),
        ("-age < -18", [2, 3]),
        ("abs(age) >= 20", [2, 3]),
        ("coalesce(age, 0) = 0", [4]),
        ("CASE WHEN id > 2 THEN age ELSE 0 END > 1", [3]),
        ("CASE age WHEN 5 THEN 'a' ELSE 'b' END = 'a'", [1]),
        ("greatest(age, 18) = 20", [2]),
        ("age > id * 10", [3]),
        ("(age < 18) IS NOT TRUE", [2, 3, 4]),
        ("age = '5'", [1]),
    ],
)
def test_field_beside_a_number_is_a_number(condition: str, expected: list[int]) -> None:
    sent = [{"id": 1, "age": 5}, {"id": 2, "age": 20}, {"id": 3, "age": 100}, {"id": 4}]
    assert [one["id"] for one in rows(spec_of(filter=condition), *sent)] == expected


def test_text_beside_a_number_makes_a_bad_row_unless_it_spells_one() -> None:
    sent = [b'{"id": 1, "age": "20"}', b'{"id": 2, "age": "old"}', b'{"id": 3, "age": true}']
    found = read(spec_of(filter="age >= 18"), sent)
    assert found.rows.column("id").to_pylist() == [1]
    assert found.bad.by_reason == {"filter: the expression fails": 2}


@pytest.mark.parametrize("decoder", ["JSON", "AVRO"])
def test_field_may_be_spelt_in_several_ways(decoder: str) -> None:
    declared = {"type": decoder, **({"avroSchema": json.dumps(AVRO)} if decoder == "AVRO" else {})}
    write = avro if decoder == "AVRO" else lambda one: json.dumps(one).encode()
    derived = {"word": "concat(WORD, jsonFormat(Word), ' ')", "number": "COUNT + 0"}
    spec = spec_of(decoder=declared, filter="Count > 4 AND count < 9 AND word = 'a'", derivedColumns=derived)
    sent = [{"id": number, "count": number, "word": "a"} for number in range(12)]
    found = read(spec, [write(one) for one in sent])
    assert found.rows.to_pylist() == [
        {"id": number, "word": 'a "a"', "other": None, "number": number} for number in range(5, 9)
    ]


def test_json_of_a_field_is_what_the_message_has() -> None:
    spec = spec_of(derivedColumns={"word": "jsonFormat(actor)", "other": "actor"})
    values = [{"login": "x"}, 'a "b"', [1, 2.5, None], 7, True, None]
    found = rows(spec, *({"id": place, "actor": value} for place, value in enumerate(values)), {"id": 9})
    assert [one["word"] for one in found] == ['{"login":"x"}', r'"a \"b\""', "[1,2.5,null]", "7", "true", None, None]
    assert [one["other"] for one in found][:2] == ['{"login": "x"}', 'a "b"']


def test_derived_columns_are_worked_out_in_the_order_in_which_they_need_each_other() -> None:
    derived = {"word": "concat(other, '!', '')", "other": "upper(number)", "number": "cents * 2"}
    assert rows(spec_of(derivedColumns=derived), {"id": 1, "cents": 5, "number": 1}) == [
        {"id": 1, "word": "10!", "other": "10", "number": 10}
    ]
    spec = spec_of(derivedColumns={"word": "upper(word)", "other": "concat(word, 'x', '')"}, filter="word = 'q'")
    assert rows(spec, {"id": 1, "word": "q"}, {"id": 2, "word": "Q"}) == [
        {"id": 1, "word": "Q", "other": "Qx", "number": None}
    ]


ATOMS = ("f", "g", "id", "word", "at", "tags", "1", "'x'", "2.5", "TRUE", "NULL", "9007199254740993", "h.x")
FORMS = (
    *("({} + {})", "-{}", "({} < {})", "{} IN ({}, {})", "{} BETWEEN {} AND {}", "{} IS DISTINCT FROM {}"),
    *("({}, {}) IN (({}, {}))", "({} AND {})", "({} OR {})", "NOT {}", "{} IS NOT TRUE", "{} IS NULL", "{} LIKE 'a%'"),
    *("coalesce({}, {})", "CASE WHEN {} THEN {} ELSE {} END", "CASE {} WHEN {} THEN {} END", "CAST({} AS LONG)"),
    *("abs({})", "concat({}, {}, '')", "jsonFormat({})", "greatest({}, {})", "toEpochDays({})"),
)


def any_expression(draw: random.Random, depth: int = 3) -> str:
    """An expression that may make no sense."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(ATOMS)
    form = draw.choice(FORMS)
    return form.format(*(any_expression(draw, depth - 1) for _ in range(form.count("{}"))))


def test_any_expression_is_refused_or_has_a_value_or_a_reason_for_every_row() -> None:
    fields = [
        *FIELDS,
        {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
        {"name": "tags", "type": "STRING", "multiValue": True},
    ]
    schema = spec_of(fields).table_schema
    values: dict[str, Any] = {
        "f": ["1", "x", None],
        "g": ["true", "2", ""],
        "id": [1, 2, None],
        "word": ["a", None, "3"],
    }
    rows = pa.table({**values, "word": ["a", None, "3"], "at": [1, 2, 3], "tags": [["a"], [], None]})
    draw = random.Random(budget.seed())
    num_taken = 0
    for _ in range(NUM_FILTERS * 2):
        text = any_expression(draw)
        for filter_, derived in ((text, {}), (None, {"other": text})):
            if row_expressions.problems(schema, filter_, derived):
                with pytest.raises(InvalidInputError):
                    row_expressions.RowExpressions(schema, filter_, derived)
                continue
            num_taken += 1
            judged = row_expressions.RowExpressions(schema, filter_, derived).evaluate(rows)
            num_dropped = 0 if judged.dropped is None else judged.dropped.num_rows
            assert judged.rows.num_rows + num_dropped + judged.bad.count == 3, text
    assert num_taken > NUM_FILTERS // 3


def problems(**stream: Any) -> list[str]:
    return [str(one) for one in stream_checks.problems_of(spec_of(**stream))]


def test_every_problem_of_the_expressions_is_told_with_its_place() -> None:
    derived = {"word": "nosuch(a)", "other": "a +", "number": "COUNT(*)"}
    found = [one.removeprefix("spec.ingestion.stream.") for one in problems(filter="now() > 5", derivedColumns=derived)]
    assert found == [
        "filter: NOW and AGO are of queries that somebody asks now",
        "derivedColumns.word: not supported yet: function NOSUCH",
        'derivedColumns.other: syntax error at line 1, column 10 near "+": expected an expression',
        "derivedColumns.number: an expression cannot use an aggregate: count",
    ]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ({"filter": "a < b"}, "filter: nothing says which type is compared; CAST the fields: a < b"),
        (
            {"filter": "least(a, b) < 5"},
            "filter: nothing says which type is compared; CAST the fields: least(a, b)",
        ),
        ({"filter": "word < 5"}, "filter: a text is compared with a number; CAST the text to a number: word < 5"),
        (
            {"filter": "upper(a) IN (1, 2)"},
            "filter: a text is compared with a number; CAST the text to a number: upper(a) IN (1, 2)",
        ),
        (
            {"derivedColumns": {"word": "other", "other": "word"}},
            "derivedColumns.word: derived columns cannot need each other: word needs other needs word",
        ),
        (
            {"decoder": {"type": "AVRO", "avroSchema": '"long"'}},
            "decoder: wrong Avro schema reason=it is not of a record",
        ),
    ],
)
def test_what_has_no_type_is_refused(stream: dict[str, Any], reason: str) -> None:
    assert problems(**stream) == [f"spec.ingestion.stream.{reason}"]
    with pytest.raises(InvalidInputError):
        read(spec_of(**stream), [])


def test_expression_that_no_value_of_can_fit_its_column_is_refused() -> None:
    fields = [{"name": "id", "type": "LONG"}, {"name": "raw", "type": "BYTES"}]
    found = [str(one) for one in stream_checks.problems_of(spec_of(fields, derivedColumns={"raw": "id * 2"}))]
    assert found == [
        "spec.ingestion.stream.derivedColumns.raw: gives LONG, which is no value of the column's type BYTES"
    ]
