"""Fixtures that folders share."""

import gc
import itertools
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests import budget, storage_emulators
from tests.cpu_clock import CpuClock
from tests.folder_fixtures import FolderFixtures
from tests.storage_emulators import Emulator, serve_azure, serve_gcs
from tests.support.faulty_s3 import FaultyS3, serve_faulty_s3
from xdist.scheduler import LoadFileScheduling

from merlot.metastore import sqlite
from merlot_spark.zookeeper import ZooKeeper

_CHROOTS = itertools.count()
_ROOT = Path(__file__).parent.parent
_CPU = CpuClock()
_TOGETHER = ("tests/spark", "tests/kube", "tests/faults", "tests/sql", "tests/fuzz")
"""Folders whose tests share processes (a Spark session, an API server, a cluster, nodes): one worker runs each."""
_MOST_REASON = 12_000
"""Most characters of a failure's report that are printed at once."""
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile(
    "merlot",
    max_examples=budget.examples(100),
    deadline=None,
    derandomize=budget.IS_QUICK,
    print_blob=not budget.IS_QUICK,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("merlot")


def pytest_configure(config: pytest.Config) -> None:
    """One random seed for all processes of a run above the quick level; temporary files in memory where there is room.

    Tests make and delete folders by the ten thousand. On a disk that costs 3.5 ms each and 0.26 ms of CPU time beside
    other work, in memory 0.2 and 0.05 ms."""
    config.pluginmanager.register(FolderFixtures())
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
    if not budget.IS_QUICK:
        os.environ.setdefault("MERLOT_SEED", str(secrets.randbelow(1 << 32)))


def _has_room(folder: Path) -> bool:
    """Say whether tests can write to a folder and run files in it. The one of a container is often small."""
    if not os.access(folder, os.W_OK):
        return False
    return shutil.disk_usage(folder).free >= _ROOM_BYTES and not os.statvfs(folder).f_flag & os.ST_NOEXEC


def pytest_report_header() -> str:
    told = os.environ.get("MERLOT_SEED")
    return f"tests: {budget.LEVEL}, " + (f"MERLOT_SEED={told}" if told else "fixed seeds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests at the quick level."""
    if budget.IS_QUICK:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have no garbage collection look at thirteen thousand tests again and again, while they are made or later."""
    gc.disable()
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result


class _Together(LoadFileScheduling):
    """Gives a worker whole files, and all files of a folder whose tests share processes."""

    def _split_scope(self, nodeid: str) -> str:
        return next((each for each in _TOGETHER if nodeid.startswith(each)), super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Together:
    """In the place of `--dist loadgroup`, which overlooks its groups from pytest 9.2 on."""
    return _Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Write each test's file and CPU seconds into the JUnit report."""
    if call.when == "teardown":
        item.user_properties += [("file", str(item.path.relative_to(_ROOT))), ("cpu_s", f"{_CPU.lap():.3f}")]
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once which test fails, and why: a run takes minutes to its end, and may be stopped before."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext[:_MOST_REASON]}", flush=True)


@pytest.fixture(autouse=True, scope="session")
def _heeds_signals() -> Iterator[None]:
    """A run in a shell's background is told to ignore Ctrl-C, and would hand that on to every program it starts."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def _no_fsync() -> Iterator[None]:
    """Processes die here, machines do not: the page cache is enough, and thousands of stores and segments are made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One ZooKeeper for the whole run. A test that hurts it starts its own."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zookeeper(shared_zookeeper: ZooKeeper) -> str:
    """`host:port/chroot`, with a chroot that nobody else has."""
    return f"{shared_zookeeper.hosts}/test-{os.getpid()}-{next(_CHROOTS)}"


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A ZooKeeper to kill and to freeze."""
    with ZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[FaultyS3]:
    with serve_faulty_s3() as faulty:
        yield faulty


@pytest.fixture
def s3(s3_server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> FaultyS3:
    """S3 without faults until a test asks for some."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3_server.failures = s3_server.truncations = 0
    s3_server.revoked.clear()
    s3_server.answers.set()
    return s3_server


@pytest.fixture(scope="session")
def gcs() -> Iterator[Emulator]:
    """Google's object storage."""
    with serve_gcs() as emulator:
        yield emulator


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with serve_azure(tmp_path_factory.mktemp("azurite")) as emulator:
        yield emulator


@pytest.fixture
def azure(azure_server: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Azure's object storage, and its keys in the environment."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", storage_emulators.ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", storage_emulators.KEY)
    return azure_server
