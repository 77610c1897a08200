"""Fixtures that folders share."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from merlot.metastore import sqlite
from merlot.testing.faulty_s3 import FaultyS3, serve_faulty_s3
from merlot_spark.zookeeper import ZooKeeper

_CHROOTS = itertools.count()

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("merlot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("merlot")


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
    s3_server.answers.set()
    return s3_server
