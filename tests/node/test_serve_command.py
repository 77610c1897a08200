"""`merlot serve` as a process: what it prints, and how it ends."""

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.fork_server import Child

from merlot.testing.patience import PATIENCE_S, wait_until

SERVES = re.compile(r"serves at (http://localhost:\d+), data in .*\. Stop it with Ctrl-C\.\n")


class Node:
    """The process, and all that it says, on both streams."""

    def __init__(self, number: int, folder: Path, arguments: list[str], *, is_fresh: bool) -> None:
        self._log = folder / f"log-{number}"
        command = ["serve", "--data", str(folder / "data"), "--port", "0", *arguments]
        self.process = Child("merlot.cli.main", command, self._log, is_fresh=is_fresh)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def url(self) -> str:
        """Once it serves."""
        wait_until(lambda: SERVES.search(self.said) or self.process.poll() is not None)
        found = SERVES.search(self.said)
        assert found is not None, self.said
        return found[1]

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)


Serve = Callable[..., Node]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running: list[Node] = []

    def start(*arguments: str, is_fresh: bool = False) -> Node:
        running.append(Node(len(running), tmp_path, list(arguments), is_fresh=is_fresh))
        return running[-1]

    yield start
    for node in running:
        node.process.send(signal.SIGKILL)
        node.end()


@pytest.mark.parametrize(("number", "is_fresh"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_it_says_where_it_is_and_ends_in_peace(serve: Serve, number: signal.Signals, is_fresh: bool) -> None:
    node = serve(is_fresh=is_fresh)
    with urllib.request.urlopen(f"{node.url()}/health", timeout=PATIENCE_S) as answer:
        assert answer.read() == b"OK"
    # Several stages: what answers them leaves the process without a word, too.
    query = json.dumps({"sql": "SELECT a.x FROM (VALUES (1), (2)) AS a(x) JOIN (VALUES (2)) AS b(x) ON a.x = b.x"})
    with urllib.request.urlopen(f"{node.url()}/query/sql", query.encode(), timeout=PATIENCE_S) as answer:
        assert json.load(answer)["resultTable"]["rows"] == [[2]]
    # Nor does another that wants its folder disturb it.
    second = serve()
    assert second.end() == 1
    assert second.said.count("\n") == 1
    assert second.said.startswith("error: ")
    node.process.send(number)
    assert node.end() == 0
    assert node.said.count("\n") == 1


def test_its_options_are_heeded(serve: Serve, tmp_path: Path) -> None:
    allowed, other = (tmp_path / "allowed").as_uri(), (tmp_path / "other").as_uri()
    stores = ("--deep-store-prefix", allowed, "--deep-store-prefix", "s3://bucket/x")
    caches = ("--decoded-cache", "8m", "--joined-cache", "3m", "--plan-cache", "1m")
    node = serve("--log-format", "json", "--log-level", "info", *stores, *caches)
    has_deep_stores_of_tables_where_its_owner_says(node.url(), tmp_path, allowed, other)
    with urllib.request.urlopen(f"{node.url()}/metrics", timeout=PATIENCE_S) as answer:
        told = re.findall(r'merlot_server_cache_capacity_bytes{cache="(\w+)"} (\S+)', answer.read().decode())
    assert {name: float(capacity) for name, capacity in told} == {"decoded": 8 << 20, "joined": 3 << 20}
    node.process.send(signal.SIGTERM)
    node.end()
    logs_one_object_per_line(node)


def has_deep_stores_of_tables_where_its_owner_says(url: str, folder: Path, allowed: str, other: str) -> None:
    status, body = apply(url, other)
    assert status == 400
    assert f"must be below {folder}/data/deepstore, {allowed}, s3://bucket/x; whoever runs Merlot may" in body
    assert apply(url, f"{allowed}/inner")[0] == 200


def logs_one_object_per_line(node: Node) -> None:
    lines = [line for line in node.said.splitlines(keepends=True) if not SERVES.search(line)]
    assert lines
    assert all(line.startswith('{"ts": "') and '"role": "node"' in line for line in lines)


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
    node = serve(*(argument.format(file=file) for argument in arguments))
    assert node.end() == code
    assert said.format(file=file) in " ".join(node.said.replace("│", " ").split())
    assert "Traceback" not in node.said


def apply(url: str, deep_store: str) -> tuple[int, str]:
    """Status and body of an apply of a table that has a deep store of its own."""
    text = f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: orders}}
spec:
  deepStore: {{uri: '{deep_store}'}}
  schema: {{fields: [{{name: a, type: INT}}]}}
"""
    try:
        with urllib.request.urlopen(f"{url}/apply", data=text.encode(), timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


@pytest.mark.parametrize("option", ["--deep-store", "--deep-store-prefix"])
def test_it_takes_no_secret_that_others_could_read_among_its_arguments(serve: Serve, option: str) -> None:
    node = serve(option, "s3://KEY:hush@bucket/x")
    assert node.end() == 2
    assert "credentials" in node.said
    assert "hush" not in node.said
