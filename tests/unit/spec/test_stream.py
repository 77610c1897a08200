"""What a stream may be declared as, what it may become, and what its policies come to."""

import sys
from collections.abc import Callable

import pytest

from merlot.errors import InvalidInputError
from merlot.ingest.decoders.opening import open_decoder
from merlot.ingest.decoders.protocol import Wanted
from merlot.spec import evolution, manifest
from merlot.spec.manifest import ManifestError
from merlot.spec.stream import DecoderSpec, DecoderType, OutOfRange, StreamIngestion
from merlot.spec.table import TableSpec
from merlot.streams.opening import after_gap, open_stream
from merlot.streams.protocol import OffsetRange

WANTED = Wanted(columns={}, names=())
BASE = """\
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: trips}
spec:
  schema:
    fields:
      - {name: city, type: STRING}
      - {name: tags, type: STRING, multiValue: true}
      - {name: place, type: LONG}
      - {name: at, type: TIMESTAMP, role: dateTime}
  timeColumn: at
  ingestion:
    stream:
      type: kafka
      topic: trips
      properties: {bootstrap.servers: 'a:9092'}
      decoder: {type: JSON}
      start: earliest
      derivedColumns: {city: upper(town)}
      metadata: {place: offset}
"""


def edited(*edits: tuple[str, str]) -> str:
    text = BASE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def spec_of(*edits: tuple[str, str]) -> TableSpec:
    table = manifest.from_stored(manifest.yaml_text.read(edited(*edits), [])[0].value)
    assert isinstance(table, manifest.Table)
    return table.spec


def problems_of(text: str) -> list[str]:
    with pytest.raises(ManifestError) as raised:
        manifest.load(text)
    return [str(problem) for problem in raised.value.problems]


def test_stream_is_read_with_its_defaults() -> None:
    stream = spec_of().ingestion.stream
    assert stream is not None
    assert (stream.bad_messages, stream.on_offset_out_of_range) == ("skip", "earliest")
    assert (stream.flush.rows, stream.flush.age_ms, stream.start_ms) == (5_000_000, 6 * 3_600_000, None)
    assert len(manifest.load(BASE)) == 1


def test_start_may_be_an_instant() -> None:
    stream = spec_of(("start: earliest", "start: '2013-01-31T12:00:00Z'")).ingestion.stream
    assert stream is not None
    assert stream.start_ms == 1_359_633_600_000


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "type: kafka",
            "type: kafak",
            "stream.type: a stream is kafka or files, or a package's, which has a dot in its name; did you mean kafka?",
        ),
        (
            "type: kafka",
            "type: files\n      secretRef: keys",
            "stream.secretRef: a stream of files takes no Secret; remove it",
        ),
        ("type: kafka", "type: acme.pulsar", 'unknown stream type "acme.pulsar"; no installed package offers it'),
        ("      topic: trips\n", "", "spec.ingestion.stream.topic: kafka needs a topic"),
        (
            "bootstrap.servers",
            "client.id",
            "properties: kafka needs the property bootstrap.servers: host:port of brokers",
        ),
        (
            "properties: {",
            "properties: {sasl.password: x, ",
            "properties.sasl.password: secrets belong into the Secret that secretRef names",
        ),
        (
            "properties: {",
            "properties: {group.id: x, ",
            "properties.group.id: a property that is Merlot's is not for a table to set",
        ),
        (
            "properties: {",
            "properties: {sasl.kerberos.kinit.cmd: reboot, ",
            "properties.sasl.kerberos.kinit.cmd: a property that names programs, libraries or files",
        ),
        ("type: JSON", "type: AVRO", "decoder: AVRO needs schemaRegistry or avroSchema, and not both"),
        ("type: JSON", "type: JSON, csv: {}", "decoder.csv: csv goes with type: CSV only; remove it"),
        (
            "type: JSON",
            "type: AVRO, schemaRegistry: 'http://u:p@r'",
            "stream.decoder.schemaRegistry: ",
        ),
        ("start: earliest", "start: yesterday", "stream.start: "),
        ("{city: upper(town)}", "{town: upper(city)}", 'no column "town" in spec.schema.fields'),
        ("{place: offset}", "{at: offset}", "offset fills a column of type LONG or STRING, not TIMESTAMP"),
        ("{place: offset}", "{city: key}", "metadata.city: spec.ingestion.stream.derivedColumns fills the column too"),
        ("{place: offset}", "{tags: key}", 'column "tags" is multi-valued; key is one value'),
        ("{place: offset}", "{place: offsets}", "metadata.place: "),
        ("  timeColumn: at", "  timeColumn: at\n  pushType: REFRESH", "spec.pushType: a REFRESH table is replaced"),
    ],
)
def test_problem_says_what_would_be_right(old: str, new: str, expected: str) -> None:
    assert any(expected in problem for problem in problems_of(edited((old, new))))


def test_protobuf_names_all_that_it_lacks() -> None:
    lacking = [f"spec.ingestion.stream.decoder.{part}: PROTOBUF needs {part}" for part in ("descriptorSet", "message")]
    assert all(any(part in problem for problem in problems_of(edited(("JSON", "PROTOBUF")))) for part in lacking)


@pytest.mark.parametrize(
    "edit",
    [
        ("type: JSON", "type: CSV"),
        ("{city: upper(town)}", "{city: lower(town)}"),
        ("a:9092", "b:9092"),
        ("start: earliest", "start: earliest\n      flush: {rows: 10}\n      badMessages: stop"),
    ],
)
def test_setting_that_the_next_segment_takes_up_may_change(edit: tuple[str, str]) -> None:
    assert evolution.compare(spec_of(), spec_of(edit)) == ()


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (("type: kafka", "type: files"), ".type"),
        (("topic: trips", "topic: rides"), ".topic"),
        (("start: earliest", "start: latest"), ".start"),
    ],
)
def test_change_that_makes_offsets_mean_something_else_is_refused(edit: tuple[str, str], path: str) -> None:
    [problem] = evolution.compare(spec_of(), spec_of(edit))
    assert problem.path == f"spec.ingestion.stream{path}"


def test_stream_of_a_table_stays() -> None:
    without = BASE[: BASE.index("  ingestion:")]
    [table] = manifest.load_tables(without)
    [problem] = evolution.compare(spec_of(), table.spec)
    assert problem.path == "spec.ingestion.stream"
    assert evolution.compare(table.spec, spec_of()) == ()


def test_policy_goes_on_only_where_no_message_can_come_twice() -> None:
    there = OffsetRange(100, 200)
    assert after_gap(OutOfRange.EARLIEST, 5, there) == 100
    assert after_gap(OutOfRange.EARLIEST, 900, there) is None
    assert [after_gap(OutOfRange.LATEST, wanted, there) for wanted in (5, 900)] == [200, 200]
    assert [after_gap(OutOfRange.STOP, wanted, there) for wanted in (5, 900)] == [None, None]


def test_stream_of_no_installed_package_is_refused() -> None:
    declared = StreamIngestion.model_construct(type="acme.pulsar", topic=None)
    with pytest.raises(InvalidInputError, match=r"no installed package offers the stream type=acme\.pulsar"):
        open_stream(declared)


def open_avro() -> object:
    return open_decoder(DecoderSpec(type=DecoderType.AVRO, avro_schema="{}"), WANTED, {})


def open_protobuf() -> object:
    return open_decoder(DecoderSpec(type=DecoderType.PROTOBUF, descriptor_set="x", message="y"), WANTED, {})


def open_kafka() -> object:
    return open_stream(StreamIngestion(type="kafka", topic="t"))


@pytest.mark.parametrize(
    ("missing", "opened"),
    [("confluent_kafka", open_kafka), ("fastavro", open_avro), ("google.protobuf", open_protobuf)],
)
def test_missing_extra_is_named(missing: str, opened: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    modules = ("merlot.streams.kafka", "merlot.ingest.decoders.avro", "merlot.ingest.decoders.avro_schema")
    for name in (*modules, "merlot.ingest.decoders.protobuf"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidInputError, match=r"needs the extra kafka, .* `pip install -e '\.\[kafka\]'"):
        opened()
