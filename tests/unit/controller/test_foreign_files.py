"""Files that are none of a table's own: no record of it may name them, and nothing that deletes it touches them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import PublishRequest, publish
from merlot.cluster.tasks.records import SHUFFLE_FOLDER
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.apply import ApplyError
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.controller.role import ControllerRole
from merlot.errors import InvalidInputError
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load_tables
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.testing.clock import FakeClock

EVIL, VICTIM = TableName("evil_OFFLINE"), TableName("victim_OFFLINE")
DAY_S, START_S = 86_400, FakeClock().now_ms() // 1000


def manifest(name: str, deep_store: str = "") -> str:
    own = f"\n  deepStore: {{uri: '{deep_store}'}}" if deep_store else ""
    return f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: {name}}}
spec:{own}
  schema: {{fields: [{{name: a, type: INT}}]}}
"""


class Cluster:
    """A controller over a real metastore and real files, and the time that passes for it."""

    def __init__(self, folder: Path, *prefixes: str) -> None:
        self.root = folder / "deep store"
        self.clock = FakeClock()
        self.metastore = SqliteMetastore(folder / "metastore.sqlite")
        self.store = DeepStore(str(self.root))
        stores = AllowedStores(own=str(self.root), prefixes=prefixes)
        self.role = ControllerRole(
            self.metastore, files=self.store, open_store=DeepStore, places=AllowedPlaces(stores), clock=self.clock
        )
        self.service = self.role.service
        self.loop = ControllerLoop(
            self.metastore,
            LoopConfig(owner="c", file_grace_s=3600),
            open_files=self.role._open_files,
            clock=self.clock,
        )

    def apply(self, name: str, deep_store: str = "") -> None:
        self.service.apply(manifest(name, deep_store))

    def file(self, table: TableName, name: str = "s@1.mseg") -> Path:
        """A file in a table's folder, as old as the cluster."""
        return written(self.root / table / name)

    def publish(self, table: TableName, url: str) -> None:
        self.service.publish(table, PublishRequest(records=(record(url),)))

    def pass_days(self, days: int = 3) -> None:
        for _ in range(2 * days):
            self.clock.advance(DAY_S / 2)
            self.loop.round()

    def close(self) -> None:
        self.loop.close()
        self.service.close()
        self.metastore.close()


def record(url: str) -> SegmentRecord:
    return SegmentRecord(name="s", crc=1, size_bytes=5, url=url, total_docs=1)


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"bytes")
    os.utime(path, (START_S, START_S))
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "url",
    [
        "{root}/victim_OFFLINE/s@1.mseg",
        "{root}/evil_OFFLINE/../victim_OFFLINE/s@1.mseg",
        "{root}/evil_OFFLINE/%2e%2e/victim_OFFLINE/s@1.mseg",
        "{root}/evil_OFFLINE/..%2fvictim_OFFLINE%2fs@1.mseg",
        "{root}/evil_OFFLINE/..%252fvictim_OFFLINE%252fs@1.mseg",
        "{root}/evil_OFFLINE/.../s@1.mseg",
        "{root}/evil_OFFLINE/./s@1.mseg",
        "{root}/evil_OFFLINE//s@1.mseg",
        "{root}/evil_OFFLINE/inner/s@1.mseg",
        "{root}/evil_OFFLINE/..\\victim_OFFLINE\\s@1.mseg",
        "{root}/evil_OFFLINE/s@1.conf",
        "{root}/evil_OFFLINE/",
        "{root}/EVIL_OFFLINE/s@1.mseg",
        "{root}x/evil_OFFLINE/s@1.mseg",
        "file://host{path}/evil_OFFLINE/s@1.mseg",
        "s3:/{path}/evil_OFFLINE/s@1.mseg",
        "evil_OFFLINE/s@1.mseg",
        "http://169.254.169.254/evil_OFFLINE/s@1.mseg",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_record_may_name_files_of_its_table_s_folder_only(cluster: Cluster, url: str) -> None:
    cluster.apply("evil")
    named = url.format(root=cluster.root.as_uri(), path=cluster.root)
    with pytest.raises(InvalidInputError, match=r"own folder segment=s .*folder=.*/evil_OFFLINE/") as refused:
        cluster.publish(EVIL, named)
    assert named in str(refused.value)
    assert cluster.service.segments("evil") == [{"OFFLINE": []}]


@pytest.mark.parametrize("spelled", ["file://{quoted}", "FILE://{path}", "file:///{path}", "file://{double}"])
def test_the_store_s_folder_may_be_spelled_in_any_way(cluster: Cluster, spelled: str) -> None:
    cluster.apply("evil")
    path = str(cluster.root)
    quoted, double = cluster.root.as_uri().removeprefix("file://"), path.replace("/", "//")
    url = spelled.format(quoted=quoted, path=path, double=double) + "/evil_OFFLINE/s@1.mseg"
    file = cluster.file(EVIL)
    cluster.publish(EVIL, url)
    assert cluster.store.modified_ms(url) == START_S * 1000, "whoever reads the record finds the file"
    cluster.pass_days()
    assert file.exists(), "it is no orphan"
    cluster.service.delete_table("evil")
    cluster.pass_days()
    assert not file.exists()


def test_without_a_deep_store_a_record_names_its_table_s_folder_at_least(tmp_path: Path) -> None:
    metastore = SqliteMetastore(tmp_path / "metastore.sqlite")
    service = ControllerRole(metastore).service
    service.apply(manifest("evil"))
    with pytest.raises(InvalidInputError, match="own folder"):
        service.publish(EVIL, PublishRequest(records=(record("s3://b/m/victim_OFFLINE/s@1.mseg"),)))
    with pytest.raises(InvalidInputError, match=r"url=s3://\*\*\*@b/m/evil_OFFLINE"):
        service.publish(EVIL, PublishRequest(records=(record("s3://KEY:hush@b/m/evil_OFFLINE/s.mseg"),)))
    service.publish(EVIL, PublishRequest(records=(record("s3://b/m/evil_OFFLINE/s@1.mseg"),)))
    service.close()
    metastore.close()


@pytest.mark.parametrize("has_record", [True, False])
def test_a_table_that_named_another_one_s_file_leaves_it_when_it_is_deleted(cluster: Cluster, has_record: bool) -> None:
    """Records of before they were checked are there still."""
    for name in ("evil", "victim"):
        cluster.apply(name)
    file, own = cluster.file(VICTIM), cluster.file(EVIL, "own@1.mseg")
    url = cluster.store.url_below(VICTIM, "s@1.mseg")
    if has_record:
        cluster.publish(VICTIM, url)
    publish(cluster.metastore, EVIL, [record(url)])
    cluster.service.delete_table("evil")
    cluster.pass_days(1)
    assert file.exists()
    assert not own.exists()
    cluster.service.delete_table("victim")
    cluster.pass_days()
    assert not file.exists()


def test_a_file_that_another_table_s_record_names_stays(cluster: Cluster) -> None:
    for name in ("evil", "victim"):
        cluster.apply(name)
    file = cluster.file(VICTIM)
    url = cluster.store.url_below(VICTIM, "s@1.mseg")
    cluster.publish(VICTIM, url)
    publish(cluster.metastore, EVIL, [record(url.replace("%20", " "))])
    cluster.service.delete_segments("victim", lambda _: ["s"])
    cluster.pass_days(1)
    assert file.exists()


def test_a_table_whose_deep_store_is_the_whole_disk_is_refused_and_deletes_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    with pytest.raises(ApplyError, match=r"spec.deepStore.uri: deep store is not allowed.*--deep-store-prefix"):
        cluster.apply("evil", "file:///")
    important = written(tmp_path / "elsewhere" / "important.conf")
    tables.put_table(cluster.metastore, load_tables(manifest("evil", "file:///"))[0])
    publish(cluster.metastore, EVIL, [record(important.as_uri())])
    tables.delete_table(cluster.metastore, "evil", files=tables.Files.NOW, clock=cluster.clock)
    cluster.pass_days()
    assert important.exists()
    left = tables.files_left(cluster.metastore, "evil")
    assert left is not None
    assert "deep store is not allowed uri=file:///" in str(left.error)


def test_even_where_it_is_allowed_only_segments_of_the_table_s_folder_go(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "file:///")
    cluster.apply("evil", f"file://{tmp_path}")
    important = [written(tmp_path / EVIL / "important.conf"), written(tmp_path / "elsewhere" / "s@1.mseg")]
    segment = written(tmp_path / EVIL / "s@1.mseg")
    shuffled = written(tmp_path / EVIL / SHUFFLE_FOLDER / "entry" / "run" / "0.json")
    publish(cluster.metastore, EVIL, [record(important[0].as_uri())])
    publish(cluster.metastore, EVIL, [record(important[1].as_uri())], replace=["s"])
    cluster.service.delete_table("evil")
    cluster.pass_days()
    assert [path.exists() for path in (*important, segment, shuffled)] == [True, True, False, False]
    cluster.close()


@pytest.mark.parametrize("link", ["file", "folder", "shuffle"])
def test_links_in_a_local_store_lead_no_deletion_out_of_it(cluster: Cluster, tmp_path: Path, link: str) -> None:
    cluster.apply("evil")
    outside = written(tmp_path / "outside" / "s@1.mseg")
    place = {"file": f"{EVIL}/s@1.mseg", "folder": EVIL, "shuffle": f"{EVIL}/{SHUFFLE_FOLDER}"}[link]
    (cluster.root / place).parent.mkdir(parents=True, exist_ok=True)
    (cluster.root / place).symlink_to(outside if link == "file" else outside.parent)
    publish(cluster.metastore, EVIL, [record(cluster.store.url_below(EVIL, "s@1.mseg"))])
    cluster.service.delete_table("evil")
    cluster.pass_days()
    assert outside.exists()
