"""`merlot serve` as a process: what it prints, and how it ends."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "merlot.cli.main", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def url_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"serves at (http://localhost:\d+), data in .*\. Stop it with Ctrl-C\.", line)
    assert found is not None, line
    return found[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_in_peace(serve: Serve, number: signal.Signals) -> None:
    process = serve()
    with urllib.request.urlopen(f"{url_of(process)}/health", timeout=10) as answer:
        assert answer.read() == b"OK"
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")


def test_a_folder_in_use_is_one_line_and_exit_code_one(serve: Serve) -> None:
    url_of(serve())
    second = serve()
    output, errors = second.communicate(timeout=20)
    assert (second.returncode, output) == (1, "")
    assert errors.count("\n") == 1
    assert errors.startswith("error: ")


def test_json_logs_are_one_object_per_line(serve: Serve) -> None:
    process = serve("--log-format", "json", "--log-level", "info")
    url_of(process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert all(line.startswith('{"ts": "') and '"role": "node"' in line for line in errors.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--data", "{file}"], 1, "error: cannot make the data folder path={file} reason=File exists"),
        (["--data", "{file}/below"], 1, "error: cannot make the data folder path={file}/below reason=Not a directory"),
        (["--port", "99999"], 2, "65535"),
        (["--log-level", "loud"], 2, "no such level: loud; choose one of DEBUG, INFO, WARNING, ERROR"),
    ],
)
def test_what_cannot_be_served_is_said_without_a_traceback(
    serve: Serve, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    process = serve(*(argument.format(file=file) for argument in arguments))
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert said.format(file=file) in " ".join(errors.replace("│", " ").split())
    assert "Traceback" not in errors
