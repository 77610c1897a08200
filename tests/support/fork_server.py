"""Fork server: processes of Merlot's programs that are forked from one that has imported them.

Each child is a process of its own, which can be killed and frozen like any other. It saves the two seconds of CPU time
that an interpreter takes to import everything, and half a second more for programs that load kernels. The tests of the
command line check that a program starts without this.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

from merlot.kernels.warm import warm

PRELOADED = (
    "merlot.cli.app",
    "merlot.cli.broker",
    "merlot.cli.controller",
    "merlot.cli.main",
    "merlot.cli.minion",
    "merlot.cli.serve",
    "merlot.cli.server",
    "merlot.minion.compaction",
    "merlot.minion.merge_rollup",
    "merlot_operator.__main__",
    "pandas",
    "pyarrow.pandas_compat",
)
"""Modules that the fork server imports. Other programs work too, and start more slowly. pyarrow imports pandas, if it
is installed, for its first array."""
POLL_S = 0.005
PRELOAD = "LD_PRELOAD"
PRELOAD_OPTIONS = ("FAKETIME_DONT_FAKE_MONOTONIC", "FAKETIME_CACHE_DURATION", "FAKETIME_DONT_RESET", "NO_FAKE_STAT")
"""Variables that a preloaded library reads when it is loaded: the fork server starts with them."""


class Child:
    """Running program; its output is appended to a file."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        is_fresh: bool = False,
    ) -> None:
        """Start the program.

        module: has `main()`, which may return an exit code and reads `sys.argv`. environment: this process's if left
        out. With a LD_PRELOAD, the child comes from another fork server, since a fork loads no library. is_fresh: start
        a new interpreter, for tests that measure its memory."""
        log.touch()
        environment = dict(os.environ if environment is None else environment)
        preloaded = {name: value for name, value in environment.items() if name == PRELOAD or name in PRELOAD_OPTIONS}
        self._home = _fork_server(tuple(sorted(preloaded.items())) if PRELOAD in preloaded else ())
        order = {
            "module": module,
            "arguments": list(arguments),
            "log": str(log),
            "environment": environment,
            "is_fresh": is_fresh,
        }
        self.pid: int = self._home.ask({"start": order, "path": sys.path})
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self._code is None:
            self._code = self._home.ask({"poll": self.pid})
        return self._code

    def send(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, patience_s: float) -> int:
        """Wait for the end, and kill the process if it does not come in time. Return the exit code."""
        deadline = time.monotonic() + patience_s
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
            time.sleep(POLL_S)
        return code


class _ForkServer:
    """Client of the fork server: one request after the other, from any thread.

    Requests and answers are numbered, because a test that is interrupted while it waits leaves an answer behind."""

    def __init__(self, preloaded: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.support.fork_server"]
        environment = {**os.environ, **preloaded, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._lock = threading.Lock()
        self._number = 0
        atexit.register(self._close)

    def ask(self, order: Mapping[str, Any]) -> Any:
        """Return the answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._number += 1
            self._process.stdin.write(json.dumps({**order, "number": self._number}).encode() + b"\n")
            self._process.stdin.flush()
            while True:
                number, answer = json.loads(self._process.stdout.readline())
                if number == self._number:
                    return answer

    def _close(self) -> None:
        self._process.communicate()


@functools.cache
def _fork_server(preloaded: tuple[tuple[str, str], ...] = ()) -> _ForkServer:
    return _ForkServer(dict(preloaded))


def main() -> None:
    """Run the fork server: take requests until its input ends, then kill the remaining children."""
    if PRELOAD in os.environ:
        time.sleep = _sleep
    for module in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    warm()
    gc.freeze()
    codes: dict[int, int | None] = {}
    answer: int | None
    for line in sys.stdin.buffer:
        order = json.loads(line)
        if "start" in order:
            pid = os.fork()
            if not pid:
                sys.path[:] = order["path"]
                return _live(**order["start"])
            codes[pid], answer = None, pid
        else:
            answer = _reap(codes, order["poll"])
        sys.stdout.write(f"{json.dumps((order['number'], answer))}\n")
        sys.stdout.flush()
    for pid in codes:
        if _reap(codes, pid) is None:
            os.kill(pid, signal.SIGKILL)
    return None


def _sleep(seconds: float | SupportsIndex) -> None:
    """Sleep as `time.sleep` does, without `clock_nanosleep`: libfaketime takes its instants of monotonic time for
    instants of the clock that it changes."""
    select.select((), (), (), float(seconds))


def _reap(codes: dict[int, int | None], pid: int) -> int | None:
    if codes[pid] is None and (ended := os.waitpid(pid, os.WNOHANG))[0]:
        codes[pid] = os.waitstatus_to_exitcode(ended[1])
    return codes[pid]


def _live(module: str, arguments: list[str], log: str, environment: dict[str, str], is_fresh: bool) -> None:
    """Become the child: run the program from here on."""
    silence, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream, target in enumerate((silence, output, output)):
        os.dup2(target, stream)
    if is_fresh:
        os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    sys.exit(importlib.import_module(module).main())


if __name__ == "__main__":
    main()
