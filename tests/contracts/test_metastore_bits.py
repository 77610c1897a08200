"""A bit that flips in a metastore is found when its record is read, by the record's path, or at the start."""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.budget import count, seed

from merlot.cluster.record import Record
from merlot.cluster.records import BucketRecord, TrashRecord
from merlot.cluster.tasks.records import WatermarkRecord
from merlot.errors import CorruptionError
from merlot.metastore.checksums import opened, sealed
from merlot.metastore.protocol import Node
from merlot.metastore.sqlite import SqliteMetastore
from merlot.metastore.zookeeper import ZooKeeperMetastore

Content = dict[str, tuple[bytes, int]]
"""Bytes and version by path."""


def records(rng: random.Random, number: int) -> dict[str, bytes]:
    """As roles write them: JSON, compressed JSON, names, and nodes without content."""
    made: dict[str, bytes] = {}
    for place in range(number):
        urls = tuple(f"file:///{rng.getrandbits(64):x}" for _ in range(rng.randrange(1, 60)))
        kinds: list[Callable[[], bytes]] = [
            lambda: WatermarkRecord.model_validate({"levels": {"day": rng.getrandbits(40)}}).to_bytes(),
            TrashRecord(deleted_ms=rng.getrandbits(40), urls=urls).to_bytes,
            lambda: Record.model_validate(
                {"n": rng.getrandbits(30), "texts": ["é", "x" * rng.randrange(3000)]}
            ).to_bytes(),
            f"Controller_host_{rng.randrange(9999)}".encode,
            lambda: BucketRecord().to_bytes(),
            lambda: b"[]",
            lambda: b"",
        ]
        made[f"/{rng.choice('ABC')}/{place % 7}/{place}"] = rng.choice(kinds)()
    return made


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def test_every_bit_of_a_stored_record_counts() -> None:
    """Those of the checksum, too: what is damaged is not taken for a record of before there were checksums."""
    rng = random.Random(seed())
    for path, data in records(rng, 40).items():
        stored = sealed(data, path, "3 persistent")
        assert opened(stored, path, "3 persistent") == data
        bits = range(8 * len(stored))
        for bit in bits if len(stored) < 200 else rng.sample(bits, 400):
            with pytest.raises(CorruptionError, match=f"path={path}$"):
                opened(flipped(stored, bit), path, "3 persistent")
        if data:
            for other in ((path + "x", "3 persistent"), (path, "4 persistent"), (path, "3 ephemeral")):
                with pytest.raises(CorruptionError):
                    opened(stored, *other)


def test_records_of_before_there_were_checksums_are_read() -> None:
    for path, data in records(random.Random(seed()), 60).items():
        assert opened(data, path) == data


def test_readers_without_checksums_read_sealed_records() -> None:
    """Old versions beside new ones, and after them."""
    record = WatermarkRecord.model_validate({"levels": {"day": 7}})
    assert WatermarkRecord.from_bytes(sealed(record.to_bytes(), "/w"), "/w") == record
    trash = TrashRecord(deleted_ms=1, urls=("a",))
    assert TrashRecord.from_bytes(sealed(trash.to_bytes(), "/t"), "/t") == trash


def content_of(store: SqliteMetastore) -> Content:
    found: Content = {}

    def look(path: str) -> None:
        for name in store.children(path):
            child = f"{path.rstrip('/')}/{name}"
            node = store.get(child)
            assert node is not None
            found[child] = (node.data, node.version)
            look(child)

    look("/")
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metastore.sqlite"


def fill(file: Path, rng: random.Random) -> Content:
    store = SqliteMetastore(file)
    made = records(rng, 60)
    for path, data in made.items():
        store.create(path, data)
    for path in rng.sample(sorted(made), 20):
        store.put(path, made[path] or b"{}", 0)
    content = content_of(store)
    store.close()
    return content


def test_a_flipped_bit_of_the_file_never_gives_other_records(file: Path) -> None:
    """Of pages, rows, the index and the file's head, too."""
    rng = random.Random(seed())
    content = fill(file, rng)
    sound = file.read_bytes()
    found = 0
    for _ in range(count("MERLOT_METASTORE_FLIPS", quick=300, every=3_000, fuzz=100_000)):
        bit = rng.randrange(8 * len(sound))
        file.write_bytes(flipped(sound, bit))
        try:
            store = SqliteMetastore(file)
        except CorruptionError:
            found += 1
            continue
        try:
            assert content_of(store) == content, f"bit {bit}"
        except CorruptionError:
            found += 1
        finally:
            store.close()
    assert found > 30


def test_a_flipped_bit_of_a_row_is_told_by_its_path(file: Path) -> None:
    rng = random.Random(seed())
    content = fill(file, rng)
    for path in rng.sample(sorted(path for path, (data, _) in content.items() if data), 20):
        connection = sqlite3.connect(file)
        [(data, version)] = connection.execute("SELECT data, version FROM nodes WHERE path = ?", (path,)).fetchall()
        changes = [(flipped(data, rng.randrange(8 * len(data))), version, 0), (data, version + 1, 0)]
        for change in changes:
            connection.execute("UPDATE nodes SET (data, version, session) = (?, ?, ?) WHERE path = ?", (*change, path))
            connection.commit()
            store = SqliteMetastore(file)
            with pytest.raises(CorruptionError, match=f"path={path}$"):
                store.get(path)
            store.close()
        connection.execute("UPDATE nodes SET (data, version) = (?, ?) WHERE path = ?", (data, version, path))
        connection.commit()
        connection.close()


def test_a_damaged_record_hides_no_other_and_can_be_replaced(file: Path) -> None:
    store = SqliteMetastore(file)
    for name in "abc":
        store.create(f"/all/{name}", b"{}")
    store._database._connection.execute(
        "UPDATE nodes SET data = CAST('[' || substr(data, 2) AS BLOB) WHERE path = '/all/b'"
    )
    store._database._connection.execute("UPDATE nodes SET data = CAST(data AS TEXT) WHERE path = '/all/c'")
    first, damaged, last = store.get_many(["/all/a", "/all/b", "/all/c"])
    assert first == last == Node(b"{}", 0)
    assert damaged is not None
    assert damaged.damage
    with pytest.raises(CorruptionError, match=r"path=/all/b$"):
        len(damaged.data)
    with pytest.raises(CorruptionError, match=r"path=/all/b$"):
        store.get("/all/b")
    store.put("/all/b", b"{}", damaged.version)
    assert store.get("/all/b") == Node(b"{}", 1)
    store.delete("/all/c")
    assert store.children("/all") == ["a", "b"]
    store.close()


def test_a_record_that_seems_to_be_of_an_ended_session_is_not_deleted(file: Path) -> None:
    store = SqliteMetastore(file)
    store.create("/CONFIGS/a", b"{}")
    store.close()
    connection = sqlite3.connect(file)
    connection.execute("UPDATE nodes SET session = 4 WHERE path = '/CONFIGS/a'")
    connection.commit()
    connection.close()
    with pytest.raises(CorruptionError, match="path=/CONFIGS/a"):
        SqliteMetastore(file)


def test_a_store_of_a_version_without_checksums_is_read_and_written(file: Path) -> None:
    rng = random.Random(seed())
    content = fill(file, rng)
    connection = sqlite3.connect(file)
    for path, (data, _) in content.items():
        connection.execute("UPDATE nodes SET data = ? WHERE path = ?", (data, path))
    connection.commit()
    connection.close()
    store = SqliteMetastore(file)
    assert content_of(store) == content
    [path, *_] = [path for path, (data, _) in content.items() if data]
    store.put(path, b'{"a": 1}', content[path][1])
    store.close()
    connection = sqlite3.connect(file)
    [(data,)] = connection.execute("SELECT data FROM nodes WHERE path = ?", (path,)).fetchall()
    connection.close()
    assert data.startswith(b'{"a": 1}')
    assert len(data) > 8


@pytest.mark.cluster
def test_a_flipped_bit_of_a_zookeeper_node_is_told_by_its_path(zookeeper: str) -> None:
    rng = random.Random(seed())
    chroot = f"{zookeeper.partition('/')[0]}/bits-{uuid.uuid4().hex[:8]}"
    store = ZooKeeperMetastore(chroot)
    raw = KazooClient(hosts=chroot)
    raw.start()
    try:
        for path, data in records(rng, 40).items():
            store.create(path, data)
            node = store.get(path)
            assert node is not None
            assert node.data == data
            stored, _ = raw.get(path)
            for _ in range(5 if stored else 0):
                raw.set(path, flipped(stored, rng.randrange(8 * len(stored))))
                with pytest.raises(CorruptionError, match=f"path={path}$"):
                    store.get(path)
                [found] = store.get_many([path])
                assert found is not None
                assert found.damage
            raw.set(path, data)  # as an older version writes it
            old = store.get(path)
            assert old is not None
            assert old.data == data
    finally:
        raw.stop()
        raw.close()
        store.close()
