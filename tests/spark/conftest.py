"""One Spark session for all tests, a controller's HTTP API over SQLite, and the rows of segment files as Arrow."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession
from tests.support.apps import serve_app
from tests.support.faulty_s3 import FaultyS3

from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.immutable import ImmutableSegment
from merlot_spark.session import create_session

PLACES = ("folder", "bucket")
"""Fixtures that are a `Place` each."""
TESTS_OF_SPARK = Path(__file__).parent
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True)
class Place:
    """Where a test puts its files."""

    uri: Callable[[str], str]
    put: Callable[[str, bytes], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if TESTS_OF_SPARK in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = create_session("local[2]", is_short=True, settings={"spark.sql.shuffle.partitions": "2"})
    # Workers that have another environment come from another daemon, which takes seconds to start: give it to all.
    session.sparkContext.environment.update(CREDENTIALS)
    yield session
    session.stop()


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[SqliteMetastore]:
    """The controller's."""
    store = SqliteMetastore(tmp_path / "state.sqlite")
    yield store
    store.close()


@pytest.fixture
def controller(metastore: SqliteMetastore) -> Iterator[str]:
    """URL of a controller's API that decides nothing: what is published stays as it is."""
    with serve_app(make_app(ControllerService(metastore))) as url:
        yield url


@pytest.fixture
def rows_of() -> Callable[[Iterable[Path], Iterable[str]], pa.Table]:
    """Rows of segment files, single-value columns, null where the segment says so."""

    def read(paths: Iterable[Path], names: Iterable[str]) -> pa.Table:
        names = list(names)
        parts = []
        for path in sorted(paths):
            with ImmutableSegment.open(path, verify=True) as segment:
                parts.append(pa.table({name: _values(segment, name) for name in names}))
        return pa.concat_tables(parts)

    return read


def _values(segment: ImmutableSegment, name: str) -> pa.Array:
    column = segment.column(name)
    assert column is not None
    if column.dictionary is not None:
        values = column.dictionary.arrow().take(pa.array(np.array(column.dict_ids())))
    elif column.metadata.encoding.name == "RAW_VARIABLE":
        values = pa.concat_arrays([column.strings()])
    else:
        values = pa.array(np.array(column.values()))
    if column.nulls is None:
        return values
    bits = np.unpackbits(np.array(column.nulls).view(np.uint8), bitorder="little")[: segment.num_docs]
    return pa.compute.if_else(pa.array(bits.astype(bool)), pa.scalar(None, values.type), values)


@pytest.fixture
def bucket(s3: FaultyS3) -> Place:
    """A bucket that driver and workers may read."""
    _, _, options = s3.uri("sources").partition("?")
    store = fs.S3FileSystem(region="us-east-1", scheme="http", endpoint_override=s3.url)

    def put(path: str, body: bytes) -> None:
        with store.open_output_stream(f"sources/{path}", compression=None) as stream:
            stream.write(body)

    return Place(lambda path: f"s3://sources/{path}?{options}", put)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    def put(path: str, body: bytes) -> None:
        (tmp_path / "sources" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sources" / path).write_bytes(body)

    return Place(lambda path: str(tmp_path / "sources" / path), put)
