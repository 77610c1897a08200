"""Every role is hurt in every way while tables are written and asked: no answer is wrong or silently less, and nothing
that was acknowledged is lost.

Clocks that jump, ZooKeeper's too, are in `test_wrong_clocks`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from tests.budget import count, seed
from tests.faults.hurt_cluster import FAULTS, ZOOKEEPER, HurtCluster, Means, library_is_there, written
from tests.faults.networks import can_part
from tests.support.processes import can_mount

FAULT_S = count("MERLOT_FAULT_S", quick=1, every=4, fuzz=15)
"""How long a fault lasts."""
ROLES = ("controller", "broker", "server-0", "minion-0", ZOOKEEPER)
SERVER = "server-0"
WITH_A_DISK = ("controller", SERVER, "minion-0", ZOOKEEPER)
"""A controller's disk is the deep store. A broker writes only what queries of several stages spill."""
QUICK = {("failing", SERVER), (SERVER, ZOOKEEPER, "to")}
PATIENCE = pytest.mark.timeout(900 + 10 * FAULT_S)

pytestmark = [pytest.mark.cluster, PATIENCE]


def cell(*names: str) -> object:
    """A case; all but a few are left to longer runs."""
    marks = () if names in QUICK else pytest.mark.slow("a cell of the matrix of which quick runs try some")
    return pytest.param(*names, marks=marks, id="-".join(names))


CELLS = [cell(fault, role) for fault in FAULTS for role in (WITH_A_DISK if fault in ("full", "failing") else ROLES)]
PARTS = [
    cell(one, other, way)
    for one, other in (*((role, ZOOKEEPER) for role in ROLES[:-1]), ("broker", SERVER))
    for way in ("to", "from", "both")
]


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HurtCluster]:
    means = Means(can_fill=can_mount(), can_fail=library_is_there(), can_part=can_part())
    with HurtCluster(tmp_path_factory.mktemp("hurt"), means) as hurt:
        yield hurt


def survives(hurt: HurtCluster, fault: AbstractContextManager[None]) -> None:
    """Write and ask before a fault, while it lasts, and after it."""
    life = hurt.life
    with life.probed():
        with written(life, random.Random(seed())):
            with fault:
                time.sleep(FAULT_S)
            hurt.mend()
        life.is_whole()
    print(f"seed={seed()} days={life.num_days} events={life.events.most} whole={life.num_whole} {life.reasons}")


@pytest.mark.parametrize(("fault", "role"), CELLS)
def test_a_role_that_is_hurt_makes_no_answer_wrong_and_loses_nothing(hurt: HurtCluster, fault: str, role: str) -> None:
    if fault == "full" and not can_mount():
        pytest.skip("mounting a small tmpfs needs root")
    if fault == "failing" and not library_is_there():
        pytest.skip("making disks fail needs a C compiler")
    survives(hurt, FAULTS[fault](hurt, role))


@pytest.mark.skipif(not can_part(), reason="making networks needs root and ip")
@pytest.mark.parametrize(("one", "other", "way"), PARTS)
def test_packets_that_are_lost_make_no_answer_wrong_and_lose_nothing(
    hurt: HurtCluster, one: str, other: str, way: str
) -> None:
    survives(hurt, hurt.parted(one, other, way))
