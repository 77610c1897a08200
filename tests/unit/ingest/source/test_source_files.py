"""Files of a source: which ones, what they are called, and what is refused before a row is read."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from tests.support.faulty_s3 import FaultyS3

from merlot.errors import InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot.ingest.source import blocks, columnar, locations, plan, reader
from merlot.ingest.source.listed_files import ChangedError
from merlot.ingest.source.plan import SourcePlan
from merlot.ingest.transform import SOURCE_FILE, SOURCE_ROW
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import TableSchema
from merlot.spec.table import TableSpec

SPEC = TableSpec(
    table_schema=TableSchema.model_validate(
        {"fields": [{"name": "a", "type": "INT"}, {"name": "b", "type": "STRING"}, {"name": "k", "type": "STRING"}]}
    )
)


def planned(uri: str | Path, file_format: str = "CSV", spec: TableSpec = SPEC, **more: Any) -> SourcePlan:
    return plan.make(BatchIngestion.model_validate({"sourceUri": str(uri), "format": file_format, **more}), spec)


def rows_of(found: SourcePlan) -> list[dict[str, Any]]:
    return [row for table in reader.read(found.request, found.pieces) for row in table.to_pylist()]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "1.csv",
        "sub/2.csv",
        "sub/deep/3.csv",
        "_SUCCESS",
        ".hidden.csv",
        "_temporary/4.csv",
        "sub/.staging/5.csv",
        "_d=1/6.csv",
        "other/7[x].csv",
        "a b/8%41.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a,b\n1,x\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", "1 2 3 6 7[x] 8%41"),
        ("/1.csv", "1"),
        ("/*.csv", "1"),
        ("/*", "1 2 3 6 7[x] 8%41"),
        ("/s?b", "2 3"),
        ("/*/*.csv", "2 6 7[x] 8%41"),
        ("/{1.csv,sub/*.csv}", "1 2"),
        ("/sub/[1-2].csv", "2"),
        ("/sub/[^3]*.csv", "2"),
        ("/other/7[x].csv", "7[x]"),
        ("/a b/*", "8%41"),
        ("/_temporary/*", "4"),
        ("/.hidden.csv", ".hidden"),
    ],
)
@pytest.mark.parametrize("is_uri", [False, True])
def test_a_source_is_a_file_a_folder_or_a_glob(tree: Path, pattern: str, names: str, is_uri: bool) -> None:
    uri = f"{tree}{pattern}" if not is_uri else f"file://{tree}{pattern}".replace("%", "%25").replace(" ", "%20")
    found = [Path(file.path).name.removesuffix(".csv") for file in locations.list_files(uri)]
    assert sorted(found) == sorted(names.split(" ") if " b" not in names else names)


@pytest.mark.parametrize("pattern", ["/nothing", "/*.parquet", "/1.csv/*", "/_none*"])
def test_a_source_without_files_is_not_found(tree: Path, pattern: str) -> None:
    with pytest.raises(NotFoundError, match="no source files"):
        locations.list_files(f"{tree}{pattern}")


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("s3://b/f?regoin=eu", InvalidInputError, 'unknown option "regoin"'),
        ("s3:///f", InvalidInputError, "names no bucket"),
        ("gopher://b/f", InvalidInputError, "cannot open source"),
        ("s3://b/f?endpoint_override=127.0.0.1:1&scheme=http", UnavailableError, "cannot list source"),
    ],
)
def test_a_place_that_is_none_is_said_plainly(
    uri: str, error: type[MerlotError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(error, match=message):
        locations.list_files(uri)


def test_folders_give_columns_of_text(tmp_path: Path) -> None:
    for folder in ("k=01", "K=a%2Fb%20c", "k=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f.csv").write_text("a,b\n1,x\n")
    found = rows_of(planned(tmp_path))
    assert sorted(str(row["k"]) for row in found) == ["01", "None", "a/b c"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("k=above/lake", [None, "1"]),
        ("k=above/lake/*/*.csv", ["1"]),
        ("k=above/lake/k=1", [None]),
        ("k=above/lake/k=1/f.csv", [None]),
        ("k=above/*/*/f.csv", ["1"]),
        ("*/lake/f.csv", ["above"]),
    ],
)
def test_folders_above_the_source_are_no_columns(tmp_path: Path, source: str, expected: list[str | None]) -> None:
    for path in ("k=above/lake/f.csv", "k=above/lake/k=1/f.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("a,b\n1,x\n")
    assert [row.get("k") for row in rows_of(planned(tmp_path / source))] == expected
    assert [row.get("k") for row in rows_of(planned(f"file://{tmp_path}/{source}"))] == expected


def test_a_column_that_is_in_the_file_too_is_the_files(tmp_path: Path) -> None:
    (tmp_path / "K=1").mkdir()
    (tmp_path / "K=1" / "f.csv").write_text("a,k\n1,x\n2,\n")
    assert [row["k"] for row in rows_of(planned(tmp_path))] == ["x", None]
    pq.write_table(pa.table({"k": pa.array([7, None]), "b": ["x", "y"]}), tmp_path / "K=1" / "f.parquet")
    assert [row["k"] for row in rows_of(planned(tmp_path / "*" / "*.parquet", "PARQUET"))] == [7, None]
    (tmp_path / "K=1" / "f.json").write_text('{"a":1}\n{"k":2}\n{"k":null}\n')
    (tmp_path / "K=1" / "g.json").write_text('{"a":1}\n')
    assert [row["k"] for row in rows_of(planned(tmp_path / "*" / "*.json", "JSON"))] == ["1", "2", "1", "1"]


CHANGES: dict[str, Callable[[Path], object]] = {
    "overwritten": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "grown": lambda path: path.write_bytes(path.read_bytes() * 2),
    "rewritten": lambda path: os.utime(path, ns=(1, 1)),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("file_format", ["PARQUET", "ORC", "CSV", "JSON"])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_file_that_changes_after_it_was_listed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: str, change: str, is_begun: bool
) -> None:
    monkeypatch.setattr(columnar, "BATCH_ROWS", 10)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
    path = tmp_path / "f"
    rows = pa.table({"a": range(100), "b": [f"text {row}" for row in range(100)]})
    writers: dict[str, Callable[[], object]] = {
        "PARQUET": lambda: pq.write_table(rows, path),
        "ORC": lambda: pyarrow.orc.write_table(rows, path),
        "CSV": lambda: path.write_text("a,b\n" + "".join(f"{row},text\n" for row in range(100))),
        "JSON": lambda: path.write_text("".join(f'{{"a":{row}}}\n' for row in range(100))),
    }
    writers[file_format]()
    found = planned(path, file_format)
    read = reader.read(found.request, found.pieces)
    if is_begun:
        next(read)
    CHANGES[change](path)
    with pytest.raises(ChangedError, match=rf"while the job ran file={path}"):
        list(read)


@pytest.mark.parametrize("file_format", ["PARQUET", "CSV"])
def test_an_object_that_is_overwritten_after_it_was_listed_is_not_read(s3: FaultyS3, file_format: str) -> None:
    uri = s3.uri("changing", "f")
    store = pyarrow.fs.S3FileSystem(region="us-east-1", scheme="http", endpoint_override=s3.url)

    def write(num_rows: int) -> None:
        rows = pa.table({"a": range(num_rows), "b": ["x"] * num_rows})
        with store.open_output_stream("changing/f", compression=None) as stream:
            (pq.write_table if file_format == "PARQUET" else pyarrow.csv.write_csv)(rows, stream)

    write(100)
    found = planned(uri, file_format)
    assert len(rows_of(found)) == 100
    write(10)
    with pytest.raises(ChangedError, match="source file changed while the job ran file=changing/f"):
        rows_of(found)


def test_a_storage_that_asks_to_slow_down_is_asked_again(s3: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = s3.uri("slow", "f.csv")
    store = pyarrow.fs.S3FileSystem(region="us-east-1", scheme="http", endpoint_override=s3.url)
    with store.open_output_stream("slow/f.csv", compression=None) as stream:
        stream.write(b"a,b\n1,x\n")
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    s3.failures = 3
    assert len(rows_of(planned(uri))) == 1
    assert s3.failures == 0


def test_a_storage_that_refuses_the_jobs_credentials_is_not_asked_again(
    s3: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = s3.uri("closed", "f.csv")
    monkeypatch.setattr(s3, "revoked", {"test"})
    with pytest.raises(InvalidInputError, match=r"cannot list source .* credentials may not read it"):
        planned(uri)


def test_each_file_has_columns_and_types_of_its_own(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "more": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"B": ["x"], "a": pa.array([2**40])}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"a": ["3"], "b": ["y"], "B": ["z"]}), tmp_path / "3.parquet")
    found = planned(tmp_path, "PARQUET")
    assert found.types == {"a": (pa.int32(), pa.int64(), pa.string()), "b": (pa.string(),)}
    assert [(row.get("a"), row.get("b")) for row in rows_of(found)] == [(1, None), (2**40, "x"), ("3", "y")]
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "csv" / "2.csv").write_text("b,c,a\ny,,2\n")
    assert [(row["a"], row["b"]) for row in rows_of(planned(tmp_path / "csv"))] == [("1", "x"), ("2", "y")]


@pytest.mark.parametrize("header", ["a,b,b", "a,B,bB,b,b", "a,B,b2,bb,BB,B"])
def test_two_columns_that_may_be_meant_are_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "f.csv").write_text(header + "\n")
    with pytest.raises(InvalidInputError, match=r"several columns may be meant file=.*f\.csv column=b"):
        planned(tmp_path)


def test_the_exact_name_wins_and_other_doubles_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("B,b,c,c,,\n1,2,3,4,5,6\n")
    assert [row["b"] for row in rows_of(planned(tmp_path))] == ["2"]


def test_places_of_rows_count_from_the_beginning_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": range(5)})
    pq.write_table(table, tmp_path / "1.parquet", row_group_size=2)
    found = planned(tmp_path, "PARQUET")
    assert len(found.pieces) == 3
    assert [(row["a"], row[SOURCE_ROW]) for row in rows_of(found)] == [(one, one + 1) for one in range(5)]
    assert {row[SOURCE_FILE] for row in rows_of(found)} == {str(tmp_path / "1.parquet")}
    (tmp_path / "json").mkdir()
    path = tmp_path / "json" / "f.json"
    path.write_text("".join(f'{{"a": {one}}}\n' for one in range(10, 20)))
    monkeypatch.setattr(plan, "JSON_PIECE_BYTES", 50)
    assert [
        (row["a"], row[SOURCE_FILE].removeprefix(str(path)), row[SOURCE_ROW]) for row in rows_of(planned(path, "JSON"))
    ] == [
        *((str(10 + one), "", 1 + one) for one in range(5)),
        *((str(15 + one), "#byte=50", 1 + one) for one in range(5)),
    ]


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["gzip", "plain"])
def test_texts_are_unpacked_by_their_ending(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    ending = ".gz" if compress is gzip.compress else ""
    (tmp_path / f"1.csv{ending}").write_bytes(compress(b"a,b\n1,x\n") + compress(b"2,y\n"))
    (tmp_path / f"2.csv{ending}").write_bytes(b"")
    found = planned(tmp_path)
    assert (found.num_files, found.empty_files) == (2, 1)
    assert [row["a"] for row in rows_of(found)] == ["1", "2"]


def test_orc_is_read_by_stripe(tmp_path: Path) -> None:
    pyarrow.orc.write_table(pa.table({"a": range(5), "c": ["x"] * 5}), str(tmp_path / "f.orc"))
    assert [row["a"] for row in rows_of(planned(tmp_path, "ORC"))] == list(range(5))


@pytest.mark.parametrize(
    ("name", "content", "file_format"),
    [
        ("README.md", b"# not a table", "PARQUET"),
        ("f.orc", b"# not a table", "ORC"),
        ("f.csv", b"\xff\xfea\0,\0", "CSV"),
        ("f.csv.gz", b"a,b\n1,2\n", "CSV"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path, name: str, content: bytes, file_format: str) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    if file_format != "PARQUET":
        (tmp_path / "1.parquet").unlink()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"file=.*/{name}"):
        planned(tmp_path, file_format)


def test_a_damaged_page_or_stream_is_told_by_file(tmp_path: Path) -> None:
    (tmp_path / "f.json.gz").write_bytes(gzip.compress(b'{"a":1}\n' * 100_000)[:-200])
    with pytest.raises(InvalidInputError, match=r"cannot read source file=.*f\.json\.gz format=JSON"):
        rows_of(planned(tmp_path, "JSON"))
    (tmp_path / "f.json.gz").unlink()
    pq.write_table(pa.table({"a": range(10_000)}), tmp_path / "f.parquet")
    content = bytearray((tmp_path / "f.parquet").read_bytes())
    content[4:400] = b"\xff" * 396
    (tmp_path / "f.parquet").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"cannot read source file=.*f\.parquet format=PARQUET"):
        rows_of(planned(tmp_path, "PARQUET"))


def test_a_source_of_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("x,y\n1,2\n")
    with pytest.raises(InvalidInputError, match="source has no column of the table"):
        planned(tmp_path)


def test_old_instants_keep_their_century(tmp_path: Path) -> None:
    field = {"name": "at", "type": "TIMESTAMP", "role": "dateTime"}
    spec = TableSpec(table_schema=TableSchema.model_validate({"fields": [field]}))
    years = [f"{year}-12-31" for year in ("0001", "1850", "9999")]
    instants = pa.array(years).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"at": instants}), tmp_path / "f", use_deprecated_int96_timestamps=True)
    found = rows_of(planned(tmp_path, "PARQUET", spec))
    assert [str(row["at"])[:10] for row in found] == years


def test_a_type_that_nobody_can_convert_is_refused_by_column() -> None:
    kind = pa.month_day_nano_interval()
    described = plan._Described(locations.SourceFile("f", 1), {"a": pa.int32(), "b": kind}, ())
    with pytest.raises(
        InvalidInputError,
        match=r"no value of the type can become one of the column file=f column=b type=month_day_nano",
    ):
        plan._check_types([described], SPEC, set())


def test_a_type_of_parquets_that_arrow_hands_over_as_bytes_is_refused_by_column(tmp_path: Path) -> None:
    spec = TableSpec(
        table_schema=TableSchema.model_validate(
            {"fields": [{"name": "a", "type": "INT"}, {"name": "v", "type": "JSON"}, {"name": "w", "type": "BYTES"}]}
        )
    )
    for number, select in enumerate(("{'x': 1}::VARIANT AS v", "12::VARIANT AS V", "1::VARIANT AS w")):
        path = tmp_path / f"{number}.parquet"
        duckdb.sql(f"COPY (SELECT 1 AS a, {select}) TO '{path}'")
        with pytest.raises(InvalidInputError, match=rf"that is not read file={path} column=[vw] type=VARIANT"):
            planned(path, "PARQUET", spec)
    assert rows_of(planned(path, "PARQUET"))[0]["a"] == 1
    within = "  optional group field_id=-1 v (List) {\n    repeated group field_id=2 list {\n"
    element = "      optional group field_id=-1 element (Variant(1)) {"
    assert columnar._stored_types(within + element) == {"v": "VARIANT"}


@pytest.mark.parametrize("declared", ["STRING", "JSON", "BYTES"])
def test_an_interval_of_parquets_is_bytes_and_nothing_else(tmp_path: Path, declared: str) -> None:
    duckdb.sql(f"COPY (SELECT 1 AS a, INTERVAL 3 DAYS AS v) TO '{tmp_path / '1.parquet'}'")
    fields = [{"name": "a", "type": "INT"}, {"name": "v", "type": declared}]
    spec = TableSpec(table_schema=TableSchema.model_validate({"fields": fields}))
    if declared == "BYTES":
        assert planned(tmp_path, "PARQUET", spec).num_files == 1
        return
    with pytest.raises(InvalidInputError, match=r"column=v type=INTERVAL"):
        planned(tmp_path, "PARQUET", spec)


def test_names_of_columns_that_look_like_types_are_names(tmp_path: Path) -> None:
    rows = pa.table({"a": [1], "k": ["x"], "x (Variant(1))": [{"b": 1}], "b (Interval) {": [2]})
    pq.write_table(rows, tmp_path / "1.parquet")
    assert planned(tmp_path, "PARQUET").num_files == 1


def test_a_page_that_is_not_what_its_checksum_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    rows = pa.table({"a": pa.array(range(1000), pa.int32())})
    pq.write_table(rows, path, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[data.index(pa.array([500], pa.int32()).buffers()[1].to_pybytes()[:4])] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match=rf"cannot read source file={path} .* (CRC|checksum)"):
        rows_of(planned(path, "PARQUET"))


PACKERS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, "compressed by gzip"),
    "bz2": (bz2.compress, "compressed by bzip2"),
    "xz": (lzma.compress, "compressed by xz"),
    "deflate": (zlib.compress, "compressed by deflate"),
    "zstd": (lambda data: pa.Codec("zstd").compress(data, asbytes=True), "compressed by zstd"),
    "lz4": (lambda data: pa.Codec("lz4").compress(data, asbytes=True), "compressed by lz4"),
    "utf-16": (lambda data: data.decode().encode("utf-16"), "UTF-16"),
}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("file_format", ["CSV", "JSON"])
@pytest.mark.parametrize("header", [True, False])
def test_a_packed_file_whose_name_does_not_say_so_is_told_by_what_it_is(
    tmp_path: Path, packer: str, file_format: str, header: bool
) -> None:
    pack, kind = PACKERS[packer]
    path = tmp_path / "f.GZ"
    path.write_bytes(pack(b"a,b\n1,x\n" if file_format == "CSV" else b'{"a":1}\n'))
    with pytest.raises(InvalidInputError, match=rf"the file is {kind}, not text file={path}"):
        rows_of(planned(path, file_format, **({"csv": {"header": header}} if file_format == "CSV" else {})))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('[{"a":1},{"a":2}]', "one JSON array"),
        ('[\n  {"a":1},\n  {"a":2}\n]\n', "one JSON array"),
        ('{\n  "a": 1\n}\n', "JSON over several lines"),
        ('\x1e{"a":1}\n\x1e{"a":2}\n', "JSON text sequences"),
    ],
)
def test_json_that_is_not_in_lines_is_told_by_what_it_is(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(InvalidInputError, match=rf"the file holds {kind}, not JSON lines file=.*/f\.json; write one"):
        rows_of(planned(tmp_path, "JSON"))


def test_blanks_around_a_name_of_a_header_are_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("a, B ,K\n1, x,y\n")
    assert [(row["a"], row["b"], row["k"]) for row in rows_of(planned(tmp_path))] == [("1", " x", "y")]
    (tmp_path / "f.csv").write_text("a,b,b \n1,x,y\n")
    assert rows_of(planned(tmp_path))[0]["b"] == "x"
