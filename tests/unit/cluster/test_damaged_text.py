"""Text that records store, damaged in any way, raises CorruptionError: never an error of the decoder beneath."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tests.support.events import events_manifest

from merlot.cluster import paths
from merlot.cluster.consuming import pinned, recovery
from merlot.cluster.manifests import row_rules
from merlot.cluster.packing import packed, unpacked
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments import origins
from merlot.cluster.tasks.compactions import report_valid_docs, valid_docs
from merlot.cluster.tasks.records import ValidDocsRecord
from merlot.controller.cleaning import sure_time
from merlot.errors import CorruptionError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.minion import shards
from merlot.segment.index import bloom
from merlot.spec.table import TableSpec
from merlot.spec.tasks import MERGE_LEVEL
from merlot.spec.upserting import UpsertMode, UpsertSpec
from merlot.upsert import snapshots
from merlot.upsert.valid_docs import Bits

TABLE = TableName("t_OFFLINE")
DOCS = Bits().changed(np.array([1, 2, 70_000], np.int64), to=True)


def record(name: str, **fields: object) -> SegmentRecord:
    return SegmentRecord.model_validate(
        {"name": name, "crc": 7, "size_bytes": 1, "url": name, "total_docs": 1, **fields}
    )


def merged() -> str:
    (output,) = origins.remember(TABLE, [record("a"), record("b")], [record("m", custom_map={MERGE_LEVEL: "day"})])
    return output.made_of


def spec() -> TableSpec:
    return events_manifest(Path("topic")).spec


def read_origins(text: str) -> object:
    return origins.origins([record("m", made_of=text)], ["a"])


UPSERTS = recovery.text_of(UpsertSpec(mode=UpsertMode.FULL), 3)


class DocsReport:
    """The report of valid docs in a metastore."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self.store = SqliteMetastore(Path(self._folder.name) / "meta.db")

    def stored(self) -> str:
        report_valid_docs(self.store, "stored", "s@1", 80_000, DOCS.serialized(), InstanceId("Server_a_1"))
        answer = valid_docs(self.store, "stored")
        assert answer is not None
        return answer[0].docs

    def read(self, text: str) -> object:
        path = paths.valid_docs("read")
        with suppress(NotFoundError):
            self.store.delete(path)
        self.store.create(path, ValidDocsRecord(segment="s@1", num_docs=80_000, docs=text).to_bytes())
        answer = valid_docs(self.store, "read")
        assert answer is not None
        return Bits.deserialized(answer[1], 80_000)


@functools.cache
def report() -> DocsReport:
    return DocsReport()


OBJECTS: dict[str, tuple[Callable[[], str], Callable[[str], object]]] = {
    "settings of upserts": (lambda: recovery.text_of(UpsertSpec(mode=UpsertMode.FULL), 3), pinned.unpin_upsert),
    "settings of upserts, decided anew": (
        lambda: recovery.text_of(UpsertSpec(mode=UpsertMode.FULL), 3),
        recovery._for_ever,
    ),
    "settings of a stream": (lambda: pinned.pin(spec()), lambda text: pinned.unpin(text, spec())),
}
"""By name, text as it is stored, and its reader."""
BASE64: dict[str, tuple[Callable[[], str], Callable[[str], object]]] = {
    "origins": (merged, read_origins),
    "valid docs": (lambda: report().stored(), lambda text: report().read(text)),
    "bloom filter": (lambda: bloom.to_text(np.arange(64, dtype=np.uint32)), bloom.from_text),
}
BYTES: dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]] = {
    "packed record": (lambda: packed(b"{}" * 100), lambda data: unpacked(data, "/p")),
    "outputs of a shard": (lambda: b'[{"name": "a"}]', lambda data: shards._records_of(data, 0)),
    "sure time": (lambda: b"1700000000000", sure_time._parsed),
    "snapshot of valid docs": (lambda: b"MSNP" + bytes(60), lambda data: snapshots.decode("s@1", data)),
}
NO_OBJECTS = ["", "[]", "[1]", "null", "7", '"text"', "{", '{"upsert": ', "\ud800", "[" * 100_000, '{"recovery": []}']


@pytest.mark.parametrize("reader", OBJECTS)
@pytest.mark.parametrize("text", NO_OBJECTS, ids=[text[:12].encode("utf-8", "replace").decode() for text in NO_OBJECTS])
def test_text_that_is_no_such_object_is_corrupt(reader: str, text: str) -> None:
    stored, read = OBJECTS[reader]
    read(stored())
    with pytest.raises(CorruptionError):
        read(text)


@pytest.mark.parametrize("reader", OBJECTS)
def test_a_member_of_another_type_is_corrupt_or_accepted(reader: str) -> None:
    stored, read = OBJECTS[reader]
    fields = json.loads(stored())
    for name in [*fields, "recovery", "mode", "schema"]:
        for value in (None, 1, "x", [], [1], {}, {"x": 1}):
            with suppress(CorruptionError):
                read(json.dumps({**fields, name: value}))


@pytest.mark.parametrize("reader", BASE64)
def test_damaged_base64_is_corrupt(reader: str) -> None:
    stored, read = BASE64[reader]
    text = stored()
    read(text)
    data = base64.b64decode(text)
    damaged = ["!", "a", text[:-1], f"{text}!", f"\n{text}", text.replace(text[4], "\u00e9"), "\u0661" * 8]
    damaged += [base64.b64encode(part).decode() for part in (data[:-1], data[: len(data) // 2 + 1])]
    for wrong in damaged:
        with pytest.raises(CorruptionError):
            read(wrong)


@pytest.mark.parametrize("reader", BASE64)
def test_bytes_that_are_changed_raise_no_other_error(reader: str) -> None:
    stored, read = BASE64[reader]
    data = base64.b64decode(stored())
    for position in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] ^= mask
            with suppress(CorruptionError):
                read(base64.b64encode(changed).decode())


@pytest.mark.parametrize("reader", BYTES)
def test_damaged_bytes_are_corrupt(reader: str) -> None:
    stored, read = BYTES[reader]
    data = stored()
    for damaged in (b"", b"x", b"\xff" * 40, data[: len(data) // 2] + b"\x00", b"[1]", b"{", b"null"):
        with pytest.raises(CorruptionError):
            read(damaged)


def test_noted_settings_that_cannot_be_read_are_corrupt() -> None:
    with pytest.raises(CorruptionError):
        row_rules._noted({"mode": 7})


@pytest.mark.parametrize("text", NO_OBJECTS[:-1], ids=range(len(NO_OBJECTS) - 1))
def test_the_part_for_upserts_of_unreadable_settings_is_empty(text: str) -> None:
    assert pinned.pinned_upsert(text) == ""
    assert recovery.number_of(text) == 0
