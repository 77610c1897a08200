"""A range index finds exactly the docs of a range, of numbers, ids and floats with what is odd about them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.forgery import put_together, taken_apart
from tests.unit.segment.segment_tables import build, field_of, matching

from merlot.errors import CorruptionError
from merlot.query.filter.predicates import DocList, RangeMatch
from merlot.query.filter.resolve import Node
from merlot.segment.contents import check_file
from merlot.segment.index import range as range_index
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

NUM_DOCS = 60_000
SCHEMA = TableSchema(
    fields=(
        field_of(TypeName.LONG, name="raw"),
        field_of(TypeName.DOUBLE, name="real"),
        field_of(TypeName.STRING, name="text"),
        field_of(TypeName.LONG, name="coded"),
    )
)
NAMES = ("raw", "real", "text", "coded")
WITH, WITHOUT = IndexingSpec(range=NAMES, no_dictionary=("raw", "real")), IndexingSpec(no_dictionary=("raw", "real"))


def rows() -> pa.Table:
    random = np.random.default_rng(5)
    real = random.normal(0, 100, NUM_DOCS)
    real[::5000] = np.nan
    real[1::5000], real[2::5000] = -0.0, np.inf
    return pa.table(
        {
            "raw": random.integers(-(2**40), 2**40, NUM_DOCS),
            "real": real,
            "text": [f"t{value:05}" for value in random.integers(0, 9000, NUM_DOCS)],
            "coded": random.integers(0, 3000, NUM_DOCS),
        }
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    table = rows()
    folder = tmp_path_factory.mktemp
    return build(folder("a"), SCHEMA, table, WITH).path, build(folder("b"), SCHEMA, table, WITHOUT).path


def found(path: Path, where: str) -> tuple[Node, list[int]]:
    return matching(path, SCHEMA, where)


@pytest.mark.parametrize(
    "where",
    [
        "raw BETWEEN 1000000000 AND 2000000000",
        "raw < -1099000000000",
        "raw <= -1099000000000",
        "raw BETWEEN -5 AND -6000",
        "real = 0",
        "real BETWEEN -0.001 AND 0.5",
        "real < -300",
        "real BETWEEN 400 AND 1e300",
        "text BETWEEN 't00100' AND 't00120'",
        "text LIKE 't0001%'",
        "coded = 77",
        "coded BETWEEN 5 AND 9",
        "coded < 4",
    ],
)
def test_it_finds_the_docs_that_a_scan_finds(paths: tuple[Path, Path], where: str) -> None:
    node, docs = found(paths[0], where)
    _, wanted = found(paths[1], where)
    assert docs == wanted
    if wanted:
        assert isinstance(node, DocList)
        assert node.index == "range"


@pytest.mark.parametrize("where", ["raw > 0", "real < 100", "coded BETWEEN 100 AND 2500", "NOT raw BETWEEN 1 AND 9"])
def test_many_docs_are_scanned_for(paths: tuple[Path, Path], where: str) -> None:
    node, docs = found(paths[0], where)
    assert isinstance(node, RangeMatch)
    assert docs == found(paths[1], where)[1]


@pytest.mark.parametrize("doc", [1 << 31, NUM_DOCS])
def test_docs_that_do_not_exist_are_not_read(paths: tuple[Path, Path], tmp_path: Path, doc: int) -> None:
    forged = tmp_path / "forged.mseg"
    parts = taken_apart(paths[0].read_bytes())
    number = parts.column("coded")["buffers"][range_index.DOCS][0]
    parts.buffers[number] = doc.to_bytes(4, "little") + parts.buffers[number][4:]
    forged.write_bytes(put_together(parts))
    with pytest.raises(CorruptionError, match="docs of a range index do not exist"):
        found(forged, "coded = 77")


def test_an_order_of_other_values_is_found_by_a_look_at_all(paths: tuple[Path, Path], tmp_path: Path) -> None:
    forged = tmp_path / "forged.mseg"
    parts = taken_apart(paths[0].read_bytes())
    number = parts.column("raw")["buffers"][range_index.DOCS][0]
    docs = parts.buffers[number]
    parts.buffers[number] = docs[4:8] + docs[:4] + docs[8:]
    forged.write_bytes(put_together(parts))
    with pytest.raises(CorruptionError, match="contents of the range index"):
        check_file(forged)
