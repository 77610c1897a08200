"""The deep store over a local folder, over Google's storage, and over S3 that fails on demand."""

import os
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.faulty_s3 import FaultyS3

from merlot.errors import CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import SegmentKey, SegmentName, TableName
from merlot.schemes import DEEP_STORES
from merlot.store.deepstore import DeepStore, largest_of
from merlot.store.retry import OutOfSpaceError, RetryPolicy

TABLE = TableName("flights_OFFLINE")
KEY = SegmentKey(SegmentName("flights_0"), 7)
QUICK = RetryPolicy(attempts=3, first_wait=0.001)


@pytest.fixture(params=["local", "s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DeepStore:
    if request.param == "local":
        return DeepStore(str(tmp_path / "deep"), retry=QUICK)
    if request.param == "gs":
        return DeepStore(request.getfixturevalue("gcs").uri(f"deep-{tmp_path.name}"), retry=QUICK)
    return open_s3(request.getfixturevalue("s3"))


def open_s3(s3: FaultyS3) -> DeepStore:
    return DeepStore(s3.uri(), retry=QUICK)


def written(path: Path, data: bytes = b"x" * 5000) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_comes_back_as_it_was_put(store: DeepStore, tmp_path: Path) -> None:
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    assert store.list(TABLE) == [url]
    store.fetch(url, tmp_path / "b", expected_size=5000)
    assert (tmp_path / "b").read_bytes() == b"x" * 5000
    written_ms = store.modified_ms(url)
    assert written_ms is not None
    assert abs(written_ms - time.time() * 1000) < 600_000
    store.delete(url)
    store.delete(url)
    assert store.list(TABLE) == []
    assert store.modified_ms(url) is None
    with pytest.raises(NotFoundError):
        store.fetch(url, tmp_path / "c")


def test_many_files_are_put_at_once_and_may_be_put_again(store: DeepStore, tmp_path: Path) -> None:
    keys = [SegmentKey(SegmentName(f"flights_{number}"), number) for number in range(3)]
    files = [(written(tmp_path / key.name, key.name.encode()), store.url_of(TABLE, key)) for key in keys]
    beside = store.url_below(TABLE, "folder", "0.json")
    for _ in range(2):
        store.put_all([*files, (files[0][0], beside)])
        assert store.list(TABLE) == [url for _, url in files]
        assert store.list_below(TABLE, "folder") == [beside]
        assert all(source.exists() for source, _ in files)
    for number, (source, url) in enumerate(files):
        store.fetch(url, tmp_path / f"copy_{number}")
        assert (tmp_path / f"copy_{number}").read_bytes() == source.read_bytes()
    store.put_all([])
    for url in (beside, *(url for _, url in files)):
        store.delete(url)


def test_of_files_that_are_put_at_once_each_is_whole_or_not_there(tmp_path: Path) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK)
    keys = [SegmentKey(SegmentName(f"flights_{number}"), number) for number in range(3)]
    files = [(written(tmp_path / key.name), store.url_of(TABLE, key)) for key in keys]
    files[1][0].unlink()
    with pytest.raises(UnavailableError):
        store.put_all(files)
    left = [path for path in (tmp_path / "deep").rglob("*") if path.is_file()]
    assert all(path.suffix == ".mseg" and path.read_bytes() == b"x" * 5000 for path in left)


def test_what_is_in_folders_beside_the_segments_is_listed_apart(store: DeepStore, tmp_path: Path) -> None:
    beside = [store.url_below(TABLE, ".shuffle", entry, name) for entry in ("a", "b") for name in ("0.json", "0.mseg")]
    for url in (store.url_of(TABLE, KEY), *beside):
        store.put(written(tmp_path / "file"), url)
    assert store.list(TABLE) == [store.url_of(TABLE, KEY)]
    assert store.list_below(TABLE, ".shuffle") == beside
    assert store.list_below(TABLE, ".nothing") == store.list_below(TableName("none_OFFLINE"), ".shuffle") == []


def test_a_wrong_size_or_a_failed_verification_leaves_nothing(store: DeepStore, tmp_path: Path) -> None:
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)

    def refuse(path: Path) -> None:
        raise CorruptionError(f"bad {path.name}")

    with pytest.raises(CorruptionError, match="wrong size"):
        store.fetch(url, tmp_path / "new" / "b", expected_size=4999)
    with pytest.raises(CorruptionError, match="bad"):
        store.fetch(url, tmp_path / "new" / "b", verify=refuse)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_verification_that_passes_overrules_the_size(store: DeepStore, tmp_path: Path) -> None:
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    store.fetch(url, tmp_path / "b", expected_size=4999, verify=lambda copy: None)
    assert (tmp_path / "b").stat().st_size == 5000


def test_an_object_larger_than_its_record_says_is_not_fetched_whole(store: DeepStore, tmp_path: Path) -> None:
    """Whatever its content: the disk is full before it could be looked at."""
    url, limit = store.url_of(TABLE, KEY), largest_of(5000)
    store.put(written(tmp_path / "a", bytes(limit)), url)
    store.fetch(url, tmp_path / "new" / "b", expected_size=5000, verify=lambda copy: None)
    assert store.read(url, len, expected_size=5000) == limit
    (tmp_path / "new" / "b").unlink()
    store.put(written(tmp_path / "a", bytes(limit + 1)), url)
    for size in (0, 5000):
        with pytest.raises(CorruptionError, match=rf"larger than its record says .* expected={size} largest="):
            store.fetch(url, tmp_path / "new" / "b", expected_size=size, verify=lambda copy: None)
        with pytest.raises(CorruptionError, match="larger than its record says"):
            store.read(url, len, expected_size=size)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_grows_while_it_is_fetched_comes_to_an_end(tmp_path: Path) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK)
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    file = tmp_path / "deep" / TABLE / f"{KEY}.mseg"
    has_ended = threading.Event()

    def grow() -> None:
        with file.open("ab") as writer:
            while not has_ended.is_set() and writer.tell() < 1 << 30:
                writer.write(bytes(64 << 10))
                writer.flush()

    grower = threading.Thread(target=grow)
    grower.start()
    try:
        while file.stat().st_size <= largest_of(5000):
            time.sleep(0.001)
        with pytest.raises(CorruptionError, match="larger than its record says"):
            store.fetch(url, tmp_path / "new" / "b", expected_size=5000, verify=lambda copy: None)
    finally:
        has_ended.set()
        grower.join()
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("keeps_copies", [True, False])
@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "folder", "link", "linked folder"])
def test_only_regular_files_of_a_local_store_are_read(tmp_path: Path, kind: str, keeps_copies: bool) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK, keeps_copies=keeps_copies)
    file = tmp_path / "deep" / TABLE / f"{KEY}.mseg"
    file.parent.mkdir(parents=True)
    outside = written(tmp_path / "outside.mseg")
    match kind:
        case "device":
            if os.geteuid() != 0:
                pytest.skip("making a device needs root")
            os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # as /dev/zero
        case "pipe":
            os.mkfifo(file)
        case "socket":
            os.mknod(file, stat.S_IFSOCK | 0o666)
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to(outside)
        case "linked folder":
            file.parent.rmdir()
            (tmp_path / "elsewhere").mkdir()
            written(tmp_path / "elsewhere" / file.name)
            file.parent.symlink_to(tmp_path / "elsewhere")
    url = store.url_of(TABLE, KEY)
    with pytest.raises(InvalidInputError, match="not a regular file of the deep store"):
        store.fetch(url, tmp_path / "new" / "b", expected_size=5000)
    with pytest.raises(InvalidInputError, match="not a regular file of the deep store"):
        store.read(url, len, expected_size=5000)
    assert list((tmp_path / "new").iterdir()) == []


def test_no_url_leads_to_a_device(tmp_path: Path) -> None:
    """The whole disk as a deep store."""
    store = DeepStore("file:///", retry=QUICK)
    for url in ("file:////dev/zero", "file:///dev/zero", "file:///dev/../dev/zero"):
        with pytest.raises(InvalidInputError, match=r"outside the deep store|not a regular file"):
            store.fetch(url, tmp_path / "new" / "b", expected_size=1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_link_in_a_local_store_leads_no_file_out_of_it(tmp_path: Path) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK)
    (tmp_path / "outside").mkdir()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / TABLE).symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidInputError, match="a link or a special file is on the way"):
        store.put(written(tmp_path / "a"), store.url_of(TABLE, KEY))
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_store_whose_own_folder_is_a_link_is_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "deep").symlink_to(tmp_path / "disk")
    store = DeepStore((tmp_path / "deep").as_uri(), retry=QUICK)
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    store.fetch(url, tmp_path / "b", expected_size=5000)
    store.delete(url)
    assert store.list(TABLE) == []


def test_a_transfer_that_takes_too_long_is_given_up(store: DeepStore, tmp_path: Path) -> None:
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    over = time.monotonic() - 1
    with pytest.raises(UnavailableError, match="deadline passed"):
        store.fetch(url, tmp_path / "new" / "b", expected_size=5000, deadline=over)
    with pytest.raises(UnavailableError, match="deadline passed"):
        store.read(url, len, expected_size=5000, deadline=over)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_path_that_pyarrow_refuses_is_the_caller_s_error(s3: FaultyS3, tmp_path: Path) -> None:
    store = open_s3(s3)
    with pytest.raises(InvalidInputError, match="deep store refuses the path action=list"):
        store.list(TableName("a//b_OFFLINE"))


def test_a_verification_that_passes_at_the_second_try_is_enough(store: DeepStore, tmp_path: Path) -> None:
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    tries = []

    def refuse_once(path: Path) -> None:
        tries.append(path)
        if len(tries) == 1:
            raise CorruptionError("torn transfer")

    store.fetch(url, tmp_path / "b", verify=refuse_once)
    assert len(tries) == 2


def test_urls_outside_the_store_are_refused(store: DeepStore, tmp_path: Path) -> None:
    inside = store.url_of(TABLE, KEY)
    for url in ("file:///etc/passwd", "http://169.254.169.254/x", inside.replace("flights_0", "../../../x")):
        with pytest.raises(InvalidInputError, match="outside"):
            store.fetch(url, tmp_path / "b")


def test_a_uri_that_nothing_opens_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r'unknown option "regoin"; known are'):
        DeepStore("s3://bucket/x?regoin=eu-west-1")
    with pytest.raises(InvalidInputError, match="cannot open deep store"):
        DeepStore("gopher://somewhere/x")
    with pytest.raises(InvalidInputError, match="abfss:// is for sources alone; write s3://"):
        DeepStore("abfss://container@account.dfs.core.windows.net/x")


@pytest.mark.parametrize(
    "option",
    ["region=x@evil.example/", "region=evil.example%2F", "endpoint_override=evil/path", "scheme=ftp", "region="],
)
def test_no_option_leads_requests_to_a_host_that_it_does_not_name(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"option {option.partition('=')[0]} has a value that is none"):
        DeepStore(f"s3://bucket/x?{option}")


def test_passing_failures_of_s3_are_retried(s3: FaultyS3, tmp_path: Path) -> None:
    store = open_s3(s3)
    url = store.url_of(TABLE, KEY)
    s3.failures = 2
    store.put(written(tmp_path / "a"), url)
    s3.failures = 2
    store.fetch(url, tmp_path / "b", expected_size=5000)
    assert (tmp_path / "b").read_bytes() == b"x" * 5000


def test_s3_that_stays_down_is_a_clear_error_and_leaves_nothing(s3: FaultyS3, tmp_path: Path) -> None:
    store = open_s3(s3)
    url = store.url_of(TABLE, KEY)
    s3.failures = 10_000
    with pytest.raises(UnavailableError, match=r"deep store failed action=write path=bucket/deep/flights_OFFLINE"):
        store.put(written(tmp_path / "a"), url)
    with pytest.raises(UnavailableError, match="deep store failed action=read"):
        store.fetch(url, tmp_path / "new" / "b")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_transfer_cut_short_is_fetched_again(s3: FaultyS3, tmp_path: Path) -> None:
    store = open_s3(s3)
    url = store.url_of(TABLE, KEY)
    store.put(written(tmp_path / "a"), url)
    s3.truncations = 1
    store.fetch(url, tmp_path / "b", expected_size=5000)
    assert (tmp_path / "b").stat().st_size == 5000


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    disk = tmp_path / "tiny"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_said_and_leaves_nothing(tiny_disk: Path, tmp_path: Path) -> None:
    large = written(tmp_path / "large", os.urandom(200_000))
    roomy, full = DeepStore(str(tmp_path / "deep"), retry=QUICK), DeepStore(str(tiny_disk / "deep"), retry=QUICK)
    roomy.put(large, roomy.url_of(TABLE, KEY))
    with pytest.raises(OutOfSpaceError, match="no space left"):
        roomy.fetch(roomy.url_of(TABLE, KEY), tiny_disk / "b")
    with pytest.raises(OutOfSpaceError, match="no space left"):
        full.put(large, full.url_of(TABLE, KEY))
    assert [path for path in tiny_disk.rglob("*") if path.is_file()] == []


def test_working_files_and_a_local_store_s_are_links_that_outlive_each_other(tmp_path: Path) -> None:
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK, keeps_copies=False)
    url = store.url_of(TABLE, KEY)
    os.utime(written(tmp_path / "a"), (1000, 1000))
    store.put(tmp_path / "a", url)
    written_ms = store.modified_ms(url)
    assert written_ms is not None
    assert abs(written_ms - time.time() * 1000) < 600_000
    store.put(tmp_path / "a", url)
    assert [path.name for path in (tmp_path / "deep" / TABLE).iterdir()] == [f"{KEY}.mseg"]
    (tmp_path / "a").unlink()
    store.fetch(url, tmp_path / "b", expected_size=5000)
    assert (tmp_path / "b").stat().st_nlink == 2
    store.put(written(tmp_path / "c", b"y" * 5000), url)
    store.delete(url)
    assert (tmp_path / "b").read_bytes() == b"x" * 5000
    with pytest.raises(NotFoundError):
        store.fetch(url, tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_working_file_of_a_store_on_another_file_system_is_a_copy(tmp_path: Path) -> None:
    here = tmp_path.stat().st_dev
    others = (folder for folder in (Path("/dev/shm"), Path(__file__).parent) if os.access(folder, os.W_OK))
    folder = next((each for each in others if each.stat().st_dev != here), None)
    if folder is None:
        pytest.skip("needs a second file system: set TMPDIR to a folder on another one than this file")
    with tempfile.TemporaryDirectory(dir=folder) as other:
        store = DeepStore(other, retry=QUICK, keeps_copies=False)
        url = store.url_of(TABLE, KEY)
        store.put(written(tmp_path / "a"), url)
        store.fetch(url, tmp_path / "b", expected_size=5000)
        assert (tmp_path / "b").stat().st_nlink == 1
        assert (tmp_path / "b").read_bytes() == b"x" * 5000


@pytest.fixture
def renaming(tmp_path: Path) -> DeepStore:
    """A store that writes as it does in HDFS, in a folder."""
    store = DeepStore(str(tmp_path / "deep"), retry=QUICK)
    (tmp_path / "deep" / TABLE).mkdir(parents=True)
    store._is_local, store._shows_partial_files = False, True
    return store


def names_in(store: DeepStore) -> set[str]:
    return {url.rpartition("/")[2] for url in store.list_below(TABLE, "")}


def test_hdfs_shows_partial_files_and_no_other_deep_store_does() -> None:
    assert [row.name for row in DEEP_STORES if row.shows_partial_files] == ["hdfs"]


def test_a_put_that_fails_midway_shows_no_part_of_the_file(renaming: DeepStore, tmp_path: Path) -> None:
    url = renaming.url_of(TABLE, KEY)
    unreadable = Path("/proc/self/mem")  # it can be opened, and the first read fails
    with pytest.raises(UnavailableError):
        renaming.put(unreadable, url)
    assert names_in(renaming) == set()
    renaming.put(written(tmp_path / "a"), url)
    with pytest.raises(UnavailableError):
        renaming.put(unreadable, url)
    renaming.fetch(url, tmp_path / "b", expected_size=5000)
    assert names_in(renaming) == {f"{KEY}.mseg"}


def test_a_file_that_is_there_stays_and_a_part_of_it_is_replaced(renaming: DeepStore, tmp_path: Path) -> None:
    url, source = renaming.url_of(TABLE, KEY), written(tmp_path / "a")
    file = tmp_path / "deep" / TABLE / f"{KEY}.mseg"
    renaming.put(source, url)
    inode = file.stat().st_ino
    renaming.put(source, url)
    assert file.stat().st_ino == inode, "whoever reads it goes on"
    written(file, b"x" * 10)
    renaming.put(source, url)
    assert file.read_bytes() == b"x" * 5000
    assert names_in(renaming) == {f"{KEY}.mseg"}
