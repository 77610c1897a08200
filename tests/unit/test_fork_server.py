"""Processes that are forked from the fork server."""

import json
from pathlib import Path

from tests.support import fork_server
from tests.support.fork_server import Child


def test_an_answer_that_nobody_read_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    """A test that is interrupted between its order and the answer, by its time-out, must not fail those after it."""
    child = Child("merlot.cli.main", ["--version"], tmp_path / "log")
    pipe = fork_server._fork_server()._process.stdin
    assert pipe is not None
    pipe.write(json.dumps({"poll": child.pid, "number": 0}).encode() + b"\n")
    pipe.flush()
    assert child.wait(60) == 0
    second = Child("merlot.cli.main", ["no-such-command"], tmp_path / "log")
    assert second.wait(60) == 2
    assert "merlot 0." in (tmp_path / "log").read_text()
