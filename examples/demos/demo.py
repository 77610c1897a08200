"""Parts that demos of streams have in common: a node and its client, a producer, the live view, the command line.

A demo's own part is a `Play`. The producer has a thread of its own; all else runs on the main thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from examples.demos.local_node import LocalNode, free_port
from rich.console import Console
from rich.live import Live
from rich.table import Table as View
from rich.text import Text

from merlot.errors import MerlotError
from merlot.kernels.warm import warm

TICK_S: Final = 0.05
LOOK_S: Final = 0.25
ANSWER_S: Final = 60.0


class DemoClient:
    """Client of the node."""

    def __init__(self, url: str) -> None:
        self._url = url

    def call(self, path: str, body: bytes | None = None, content_type: str = "application/json") -> Any:
        """Return the node's JSON answer; the request is a POST if there is a body."""
        request = urllib.request.Request(f"{self._url}{path}", body, {"Content-Type": content_type})
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)

    def rows(self, sql: str) -> list[list[Any]]:
        """Return the rows of an answer; empty while there is none."""
        answer = self.call("/query/sql", json.dumps({"sql": sql}).encode())
        if answer["exceptions"] or not answer.get("resultTable"):
            return []
        rows: list[list[Any]] = answer["resultTable"]["rows"]
        return rows

    def row(self, sql: str) -> list[Any] | None:
        """Return the first row of an answer; None while there is none."""
        return next(iter(self.rows(sql)), None)


class Producer(ABC):
    """Writer of events at a constant rate, on a thread of its own. `num_written` counts the events so far."""

    def __init__(self, rate: int) -> None:
        """`rate`: events per second."""
        self.num_written = 0
        self._rate = rate
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    @property
    def is_done(self) -> bool:
        """Return True if there are no more events."""
        return False

    @abstractmethod
    def write(self, most: int) -> int:
        """Write the next events, at most `most`; return how many were written."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop writing."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self.is_done and not self._is_over.wait(TICK_S):
            due = int((time.monotonic() - began) * self._rate) - self.num_written
            self.num_written += self.write(due)


class Play(ABC):
    """A demo: manifests for the node, a producer, a view, and a check of the result."""

    manifests: bytes
    topic: Path
    producer: Producer

    @abstractmethod
    def is_over(self, seconds: float) -> bool:
        """Return True if the demo has played long enough after so many seconds."""

    @abstractmethod
    def view(self, client: DemoClient, seconds: float) -> View:
        """Return the view of this moment, `seconds` after the beginning."""

    @abstractmethod
    def check(self, client: DemoClient) -> tuple[bool, str]:
        """Return True if the answer equals what was written, and a text with both."""


def arguments(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all demos have."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(description or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=5_000, help="events per second (%(default)s)")
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, default=True, help="keep answering after it has played"
    )
    parser.add_argument("--data", type=Path, default=Path("build/quickstart"), help="folder of all files (%(default)s)")
    parser.add_argument("--port", type=int, default=8099, help="HTTP port; another one if it is taken (%(default)s)")
    return parser


def show(make: Callable[[], Play], folder: Path, chosen: argparse.Namespace) -> int:
    """Make the play and run it with a node below the folder; return the exit code."""
    console = Console(highlight=False)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        return _run(make(), LocalNode(folder / "node", free_port(chosen.port), folder), console, is_served=chosen.serve)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        return 130
    except MerlotError as error:
        Console(stderr=True, highlight=False).print(Text(f"error: {error}", style="red"))
        return 1


def _run(play: Play, node: LocalNode, console: Console, *, is_served: bool) -> int:
    try:
        console.print("Loading kernels; the first time on a machine they are compiled, which takes a minute")
        warm()
        node.start()
        client = DemoClient(node.url)
        client.call("/apply", play.manifests, "application/yaml")
        console.print(f"A node answers at {node.url} and consumes {play.topic}", soft_wrap=True)
        play.producer.start()
        _watch(play, client, console)
        play.producer.stop()
        is_right = _check(play, client, console)
        if is_right and is_served:
            console.print("It goes on answering; Ctrl-C ends it.")
            signal.pause()
        return 0 if is_right else 1
    finally:
        play.producer.stop()
        node.stop()


def _watch(play: Play, client: DemoClient, console: Console) -> None:
    began = time.monotonic()
    with Live(console=console, refresh_per_second=8) as live:
        while not play.is_over(time.monotonic() - began):
            live.update(play.view(client, time.monotonic() - began))
            time.sleep(LOOK_S)
        live.update(play.view(client, time.monotonic() - began))


def _check(play: Play, client: DemoClient, console: Console) -> bool:
    deadline = time.monotonic() + ANSWER_S
    is_right, text = play.check(client)
    while not is_right and time.monotonic() < deadline:
        time.sleep(TICK_S)
        is_right, text = play.check(client)
    console.print(Text(text, style="green" if is_right else "red"))
    return is_right
