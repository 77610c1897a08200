"""Brokers and servers are killed and started again at random moments while days are published and merged and a stream
is consumed: no answer lacks rows that were answered before, unless it says so."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.budget import count, seed
from tests.faults.lives import Life
from tests.support.events import EventFiles
from tests.support.processes import ClusterProcesses, RoleProcess

NUM_RESTARTS = count("MERLOT_PROCESS_RESTARTS", quick=2, every=40, fuzz=1000)
BROKER_SHARE = 0.8
MOST_DAYS = 60
"""Days are published until there are so many; the stream goes on."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + 10 * NUM_RESTARTS)]


class Crowd:
    """Two tables that live in a thread of their own while processes are restarted."""

    def __init__(self, life: Life, draw: random.Random) -> None:
        self._life, self._draw = life, draw
        self._is_over = threading.Event()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._failed == []

    def _run(self) -> None:
        try:
            while not self._is_over.wait(self._draw.uniform(0.2, 1.0)):
                if self._life.num_days < MOST_DAYS and self._draw.random() < 0.5:
                    self._life.publish()
                else:
                    self._life.append()
        except (AssertionError, OSError) as error:
            self._failed.append(error)


def restart(victim: RoleProcess, draw: random.Random) -> None:
    """Kill it, or stop it as a rollout does, and start it again."""
    if draw.random() < 0.7:
        victim.kill()
    else:
        assert victim.stop() == 0
    time.sleep(draw.uniform(0, 0.2))
    victim.start()
    victim.wait_ready()


def test_no_answer_after_a_restart_lacks_what_was_answered_before(tmp_path: Path, zookeeper: str) -> None:
    draw = random.Random(seed())
    cluster = ClusterProcesses(tmp_path / "cluster", zookeeper, num_minions=1, level="WARNING").with_files()
    restarts: Counter[str] = Counter()
    with cluster:
        files = EventFiles(tmp_path / "topic", 2)
        store = cluster.deep_store
        life = Life(lambda: cluster.controller.url, lambda: cluster.broker.url, store, files, replication=2)
        life.begin()
        with Crowd(life, random.Random(seed() + 1)), life.probed():
            for _ in range(NUM_RESTARTS):
                victim = cluster.broker if draw.random() < BROKER_SHARE else draw.choice(cluster.servers)
                restart(victim, draw)
                restarts[victim.name] += 1
                time.sleep(draw.uniform(0, 0.4))
                assert not life.wrong, life.wrong
        life.is_whole()
    print(f"seed={seed()} restarts={dict(restarts)} days={life.num_days} events={life.events.most}")
    print(f"whole={life.num_whole} not whole: {life.reasons.most_common(5)}")
