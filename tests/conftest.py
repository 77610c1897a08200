"""Fixtures that folders share."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from merlot_spark.zookeeper import ZooKeeper

_CHROOTS = itertools.count()

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("merlot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("merlot")


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
