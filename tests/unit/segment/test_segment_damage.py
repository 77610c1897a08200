"""A file that is not as it was written is refused with its path and the reason, whatever the damage."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.segment.segment_tables import all_fields, build, field_of, table_of

from merlot.errors import CorruptionError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, SegmentName
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.immutable import ImmutableSegment, verify_file
from merlot.segment.inspect import verify
from merlot.segment.layout import FORMAT_VERSION, HEADER_BYTES, TRAILER_BYTES
from merlot.spec.indexing import Compression, IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

SCHEMA = TableSchema(fields=all_fields())
ROWS = {field.name: [None] * 5 + [[] if field.multi_value else None] for field in SCHEMA.fields}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with buffers of every kind, compressed ones too."""
    rows = table_of(SCHEMA, ROWS | {"int": list(range(6)), "string": list("abcabc")})
    indexing = IndexingSpec(
        inverted=("string", "ints"), no_dictionary=("double", "json"), compression={"string": Compression.ZSTD}
    )
    return build(tmp_path_factory.mktemp("whole"), SCHEMA, rows, indexing).path.read_bytes()


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    schema = TableSchema(fields=(field_of(TypeName.LONG, name="z"), field_of(TypeName.DOUBLE, name="l")))
    numbers = np.arange(2000) // 500
    indexing = IndexingSpec(no_dictionary=("z", "l"), compression={"z": Compression.ZSTD, "l": Compression.LZ4})
    rows = pa.table({"z": numbers, "l": numbers * 1.5})
    return build(tmp_path_factory.mktemp("compressed"), schema, rows, indexing).path.read_bytes()


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(CorruptionError) as error:
        verify_file(path)
    assert str(path) in str(error.value)
    assert verify(path)
    with pytest.raises(CorruptionError, match="file is damaged"):
        ImmutableSegment.checked(str(path.parent), SegmentKey(SegmentName("t"), 0), content)
    return str(error.value)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "cut.mseg"
    edges = {1, 8, 12, HEADER_BYTES, HEADER_BYTES + TRAILER_BYTES, len(whole) - 1, len(whole) - TRAILER_BYTES}
    for length in {*range(0, len(whole), 512), *edges}:
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptionError, match=r"cut\.mseg"):
            ImmutableSegment.open(path)


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    assert "empty" in refused(tmp_path / "t.mseg", b"")


def test_a_longer_file_is_refused(tmp_path: Path, whole: bytes) -> None:
    refused(tmp_path / "t.mseg", whole + bytes(64))
    refused(tmp_path / "t.mseg", whole + whole[-64:])


@given(data=st.data())
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_is_found_wherever_it_is(
    tmp_path: Path, whole: bytes, compressed: bytes, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from([whole, compressed])))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit >> 3] ^= 1 << (bit & 7)
    refused(tmp_path / "flipped.mseg", bytes(content))


def test_a_flipped_bit_in_every_buffer_padding_and_trailer_byte_is_found(tmp_path: Path, compressed: bytes) -> None:
    path = tmp_path / "flipped.mseg"
    for position in {*range(0, len(compressed), 16), *range(len(compressed) - TRAILER_BYTES, len(compressed))}:
        content = bytearray(compressed)
        content[position] ^= 0x40
        refused(path, bytes(content))


def test_damaged_chunks_read_without_verifying_are_an_error_or_other_numbers_but_no_crash(
    tmp_path: Path, compressed: bytes
) -> None:
    path = tmp_path / "t.mseg"
    messages = []
    for position in range(HEADER_BYTES, len(compressed) - TRAILER_BYTES, 3):
        content = bytearray(compressed)
        content[position] ^= 0xFF
        path.write_bytes(content)
        try:
            with ImmutableSegment.open(path) as segment:
                for name in segment.column_names:
                    column = segment.column(name)
                    assert column is not None
                    assert len(column.values()) == 2000
        except CorruptionError as error:
            messages.append(str(error))
    assert messages
    assert all(str(path) in message for message in messages)


def test_another_version_is_named(tmp_path: Path, whole: bytes) -> None:
    content = bytearray(whole)
    content[8] = FORMAT_VERSION + 1
    message = refused(tmp_path / "t.mseg", bytes(content))
    assert f"version {FORMAT_VERSION + 1}" in message


def test_a_missing_file_is_not_damage(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="gone"):
        ImmutableSegment.open(tmp_path / "gone.mseg")


def test_a_build_that_fails_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"),))
    built = build(tmp_path, schema, table_of(schema, {"n": [1]}))
    before = built.path.read_bytes()

    def fail_half_way() -> None:
        with FileWriter(tmp_path, "t_0") as writer:
            writer.add(np.arange(10, dtype="<u4"), "")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_half_way()
    assert [path.name for path in tmp_path.iterdir()] == ["t_0.mseg"]
    assert built.path.read_bytes() == before


def test_a_killed_build_leaves_no_segment(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, numpy as np; from pathlib import Path\n"
        "from merlot.segment.build.file_writer import FileWriter\n"
        "with FileWriter(Path(sys.argv[1]), 't_0') as writer:\n"
        "    writer.add(np.zeros(1 << 20), '')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("*.mseg"))


def test_a_directory_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.INT, name="n"),))
    with pytest.raises(UnavailableError, match=r"t_0\.mseg"):
        build(tmp_path / "none", schema, table_of(schema, {"n": [1]}))


def test_a_full_disk_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    schema = TableSchema(fields=(field_of(TypeName.DOUBLE, name="d"),))
    rows = pa.table({"d": np.random.default_rng(0).random(400_000)})
    with _largest_file(1 << 20), pytest.raises(UnavailableError, match="the disk is full"):
        build(tmp_path, schema, rows, IndexingSpec(no_dictionary=("d",)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root; run as root")
def test_a_full_tmpfs_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mount of a tmpfs is refused here; run with CAP_SYS_ADMIN")
    try:
        schema = TableSchema(fields=(field_of(TypeName.DOUBLE, name="d"),))
        rows = pa.table({"d": np.random.default_rng(0).random(400_000)})
        with pytest.raises(UnavailableError, match="the disk is full"):
            build(small, schema, rows, IndexingSpec(no_dictionary=("d",)))
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


class _largest_file:  # noqa: N801  reads as a condition
    """No file of this process may grow past `size_bytes`: writes fail as on a full disk."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)
        signal.signal(signal.SIGXFSZ, self._handler)
