"""Kafkas of a test's own, to kill, to freeze, to give other settings.

MERLOT_KAFKA_CONTROL names a program that runs them: `up FOLDER NUMBER` starts brokers 1 to NUMBER and prints
`export MERLOT_KAFKA=host:port,…`; `stop FOLDER BROKER` (SIGKILL with KILL=1 in the environment), `start FOLDER BROKER`,
`down FOLDER`. A broker's process is in FOLDER/BROKER/pid, its settings in FOLDER/BROKER/server.properties.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from merlot.errors import UnavailableError
from merlot.testing.patience import PATIENCE_S, wait_until

CONTROL = os.environ.get("MERLOT_KAFKA_CONTROL", "")
QUICK = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
"""Once it was killed, a broker is let in again when its session is over: 9 s if nobody says otherwise."""
NO_CONTROL = "needs Kafkas of its own: set MERLOT_KAFKA_CONTROL to the program that runs them"


class KafkaBrokers:
    """Brokers that run in a folder, numbered from 1."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.numbers = range(1, count + 1)
        self.servers = self._control("up", str(count)).strip().removeprefix("export MERLOT_KAFKA=")
        for number in self.numbers:
            self._write(number, QUICK)

    def create_topic(self, topic: str, num_partitions: int) -> None:
        """A topic that loses nothing that was acknowledged while a broker is down, if there are three."""
        count = len(self.numbers)
        new = NewTopic(topic, num_partitions, count, config={"min.insync.replicas": str((count + 1) // 2)})
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([new]).values():
            made.result(PATIENCE_S)

    def kill(self, number: int) -> None:
        """SIGKILL."""
        self._control("stop", str(number), KILL="1")

    def start(self, number: int) -> None:
        """Returns once it listens; it answers some seconds later."""
        listener = self.properties(number)["listeners"].partition(",")[0]
        with suppress(UnavailableError):
            # On a busy machine the program gives up before Java has begun.
            self._control("start", str(number))
        wait_until(lambda: _listens(listener.rpartition(":")[2]), 2 * PATIENCE_S)

    def freeze(self, number: int) -> None:
        """SIGSTOP."""
        os.kill(self._pid(number), signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """SIGCONT."""
        os.kill(self._pid(number), signal.SIGCONT)

    def set(self, number: int, properties: Mapping[str, str]) -> None:
        """Give it settings besides those it has, or in place of them, and start it anew."""
        self.kill(number)
        self._write(number, properties)
        self.start(number)

    def properties(self, number: int) -> dict[str, str]:
        """Its settings."""
        lines = self._settings(number).read_text().splitlines()
        return {line.partition("=")[0]: line.partition("=")[2] for line in lines if "=" in line}

    def _write(self, number: int, properties: Mapping[str, str]) -> None:
        settings = self.properties(number) | properties
        self._settings(number).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _settings(self, number: int) -> Path:
        return self._folder / str(number) / "server.properties"

    def close(self) -> None:
        """End all of them."""
        self._control("down")

    def _pid(self, number: int) -> int:
        return int((self._folder / str(number) / "pid").read_text())

    def _control(self, action: str, *arguments: str, **environment: str) -> str:
        command = [CONTROL, action, str(self._folder), *arguments]
        # Brokers outlive the command, and would keep a pipe open: what it says goes to files.
        said, complained = (self._folder.parent / f"{self._folder.name}.{name}" for name in ("out", "err"))
        with said.open("w") as out, complained.open("w") as err:
            done = subprocess.run(command, stdout=out, stderr=err, env={**os.environ, **environment}, check=False)
        if done.returncode:
            raise UnavailableError(
                f"{' '.join(command)} failed status={done.returncode} {complained.read_text()[-1000:]}"
            )
        return said.read_text()


def _listens(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


@contextmanager
def kafka_brokers(folder: Path, count: int = 1) -> Iterator[KafkaBrokers]:
    """Run brokers until the block ends."""
    brokers = KafkaBrokers(folder, count)
    try:
        yield brokers
    finally:
        brokers.close()
