"""Sources in S3: what a local path gives, an object gives."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from merlot.errors import InvalidInputError, NotFoundError
from merlot.ingest.transform import CORRUPT_RECORD
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import TableSchema
from merlot.testing.faulty_s3 import FaultyS3
from merlot_spark import object_sources, sources

SCHEMA = TableSchema.model_validate({"fields": [{"name": "id", "type": "INT"}, {"name": "code", "type": "STRING"}]})
Upload = Callable[[str, bytes], None]
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED")


@pytest.fixture
def bucket(s3: FaultyS3, spark: SparkSession) -> Iterator[Callable[[str], str]]:
    """URI of a path in a bucket that drivers and workers may read."""
    # The session, and so its workers, may be older than the credentials of this test.
    spark.sparkContext.environment.update(dict.fromkeys(CREDENTIALS, "true"))
    _, _, options = s3.uri("sources").partition("?")
    yield lambda path: f"s3://sources/{path}?{options}"
    for name in CREDENTIALS:
        spark.sparkContext.environment.pop(name)


@pytest.fixture
def upload(s3: FaultyS3, bucket: Callable[[str], str]) -> Upload:
    store = fs.S3FileSystem(region="us-east-1", scheme="http", endpoint_override=s3.url)

    def put(path: str, body: bytes) -> None:
        with store.open_output_stream(f"sources/{path}", compression=None) as stream:
            stream.write(body)

    return put


def rows(first: int, count: int = 4) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int32()), "code": [f"c{one}" for one in ids], "more": [1.5] * count})


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def read(spark: SparkSession, uri: str, file_format: str = "PARQUET", **more: Any) -> DataFrame:
    source = BatchIngestion.model_validate({"sourceUri": uri, "format": file_format, **more})
    return sources.read(spark, source, SCHEMA)


def ids_of(found: DataFrame) -> list[int]:
    return sorted(int(row["id"]) for row in found.collect())


def test_folder_glob_and_file_are_read_by_row_group(
    spark: SparkSession, bucket: Callable[[str], str], upload: Upload
) -> None:
    upload("a/day=1/x.parquet", parquet(rows(0), row_group_size=2))
    upload("a/day=2/y.parquet", parquet(rows(10)))
    upload("a/_SUCCESS", b"")
    folder = read(spark, bucket("a"))
    assert (folder.columns, ids_of(folder)) == (["id", "code"], [0, 1, 2, 3, 10, 11, 12, 13])
    assert ids_of(read(spark, bucket("a/day=?/x.parquet"))) == [0, 1, 2, 3]
    assert ids_of(read(spark, bucket("a/*"))) == ids_of(folder)
    assert ids_of(read(spark, bucket("a/day=2/y.parquet"))) == [10, 11, 12, 13]
    partitions = folder.rdd.getNumPartitions()
    assert partitions == 3, "one task per row group"


def test_expressions_see_every_column_and_files_may_lack_some(
    spark: SparkSession, bucket: Callable[[str], str], upload: Upload
) -> None:
    upload("b/1.parquet", parquet(rows(0)))
    upload("b/2.parquet", parquet(rows(10).drop(["code"])))
    found = read(spark, bucket("b"), filter="more > 1")
    assert found.columns == ["id", "code", "more"]
    assert [row["code"] for row in found.orderBy("id").collect()] == ["c0", "c1", "c2", "c3", None, None, None, None]


@pytest.mark.parametrize("compress", [False, True])
def test_text_and_orc(
    spark: SparkSession, bucket: Callable[[str], str], upload: Upload, tmp_path: Path, compress: bool
) -> None:
    def pack(text: str) -> bytes:
        return gzip.compress(text.encode()) if compress else text.encode()

    ending = ".gz" if compress else ""
    upload(f"c{compress}/1.csv{ending}", pack("id,code\n1,a\n2,b,too long\n"))
    upload(f"c{compress}/2.csv{ending}", pack("id,code\r\n3,c\r\n"))
    found = read(spark, bucket(f"c{compress}"), "CSV")
    assert sorted(row["id"] for row in found.filter(f"{CORRUPT_RECORD} IS NULL").collect()) == ["1", "3"]
    upload(f"d{compress}/1.json{ending}", pack('{"id": 1, "code": "a"}\nno json\n'))
    found = read(spark, bucket(f"d{compress}"), "JSON")
    assert [row["id"] for row in found.orderBy("id").collect()] == [None, 1]
    pyarrow.orc.write_table(rows(5), str(tmp_path / "x.orc"))
    upload(f"e{compress}/x.orc", (tmp_path / "x.orc").read_bytes())
    assert ids_of(read(spark, bucket(f"e{compress}"), "ORC")) == [5, 6, 7, 8]


def test_wrong_sources_are_said_plainly(spark: SparkSession, bucket: Callable[[str], str], upload: Upload) -> None:
    upload("f/x.parquet", b"no parquet")
    with pytest.raises(InvalidInputError, match=r"cannot read source file=s3://sources/f/x\.parquet"):
        read(spark, bucket("f"))
    with pytest.raises(NotFoundError, match="no source files uri=s3://sources/none"):
        read(spark, bucket("none"))
    with pytest.raises(InvalidInputError, match="unknown option in source uri"):
        read(spark, "s3://sources/f?regoin=eu")


def test_types_that_spark_lacks_become_wider() -> None:
    wide = object_sources.spark_type
    assert wide(pa.dictionary(pa.int32(), pa.large_string())) == pa.string()
    assert wide(pa.timestamp("ns", "Europe/Paris")) == pa.timestamp("us", "UTC")
    assert wide(pa.list_(pa.uint8())) == pa.list_(pa.int16())
    assert wide(pa.uint64()) == pa.decimal128(20, 0)
