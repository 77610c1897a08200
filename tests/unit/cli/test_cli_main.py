"""Help, exit codes and errors of the command line."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import merlot
from merlot.cli import statements
from merlot.cli.app import app
from merlot.cli.client import NodeClient
from merlot.cli.commands import COMMANDS, ROLES
from merlot.cli.completion import Completer
from merlot.cli.main import run
from merlot.cli.starting import role_command
from merlot.ports import free_port

FLIGHTS = Path(__file__).resolve().parents[3] / "examples" / "flights" / "table.yaml"
Captured = pytest.CaptureFixture[str]


def test_start_loads_nothing_heavy() -> None:
    code = "import sys, merlot.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"aiohttp", "kazoo", "numba", "numpy", "pyarrow", "pydantic", "yaml"}
    assert heavy & set(loaded) == set()
    assert len(loaded) < 300  # 213: each costs about a millisecond


def test_version_is_shown(capsys: Captured) -> None:
    assert run(["version"]) == 0
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"merlot {merlot.__version__}\n" * 2


def test_help_names_every_command(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name in (*ROLES, *COMMANDS):
        assert f"\n  {name} " in text
    assert run(["drain", "--help"]) == 0
    capsys.readouterr()
    assert run(["--version", "--help"]) == 0


def test_help_says_of_each_command_what_its_own_help_says() -> None:
    group: Any = typer.main.get_command(app)
    own = {name: (command.help or "").partition("\n")[0] for name, command in group.commands.items()}
    assert own == COMMANDS
    assert all(role_command(name).help for name in ROLES)


def test_help_loads_no_command() -> None:
    code = "import sys; from merlot.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    assert "typer" not in loaded


def commands_of(group: Any) -> Iterator[Any]:
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from commands_of(command)


def test_no_help_of_an_option_is_taken_for_markup() -> None:
    """`[default: x]` in a text would be a style called so, and not be shown."""
    groups = [typer.main.get_command(app), *map(role_command, ROLES)]
    told = [one for group in groups for command in commands_of(group) for one in command.params]
    helps = [one.help for one in told if getattr(one, "help", None)]
    assert len(helps) > 100
    assert [text for text in helps if re.search(r"\[[a-z#/@]", text)] == []


@pytest.mark.parametrize(
    "arguments", [["qurey"], ["query", "--nothing"], ["get", "segments"], ["get", "tables", "-o", "xml"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Captured) -> None:
    assert run(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["get", "tables"], ["query", "SELECT 1"], ["delete", "table", "x", "-y"]])
def test_no_node_is_one_line_with_the_next_step(arguments: list[str], capsys: Captured) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert run([*arguments, "--url", url]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (f"error: cannot reach merlot at {url}: start one with `merlot serve`, or pass --url\n")


@pytest.mark.parametrize("text", ["--12345", "2013", "1" * 19, "-" + "1" * 5000, "10000-01-01", "tomorrow"])
def test_no_time_is_wrong_usage(text: str, capsys: Captured) -> None:
    assert run(["backfill", "flights", "--from=0001-01-01", f"--to={text}", "--source=x.csv"]) == 2
    assert capsys.readouterr().err.startswith(f"error: --to is no time: '{text}'; write one like 2013-07-04")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:y", "http://x:99999", "http://[::1"])
def test_wrong_url_is_wrong_usage(url: str, capsys: Captured) -> None:
    assert run(["get", "tables", "--url", url]) == 2
    assert capsys.readouterr().err.startswith(f"error: not a URL: {url!r}")


def test_scheme_may_be_left_out(node: Any) -> None:
    assert run(["get", "tables", "--url", node.url.removeprefix("http://")]) == 0


def test_node_without_the_path_is_an_error(node: Any, capsys: Captured) -> None:
    assert run(["get", "tables", "--url", f"{node.url}/prefix"]) == 1
    error = capsys.readouterr().err
    assert error == f"error: {node.url}/prefix/tables is not there: is --url a node, or the right role's?\n"


def test_unknown_table_is_an_error(node: Any, capsys: Captured) -> None:
    assert run(["get", "segments", "nothing"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: table does not exist")
    assert len(error.splitlines()) == 1


def test_inspecting_no_file_is_an_error(capsys: Captured, tmp_path: Path) -> None:
    assert run(["segment", "inspect", str(tmp_path / "x.mseg")]) == 1
    assert "no such file" in capsys.readouterr().err


def test_reader_that_leaves_is_no_error(node: Any) -> None:
    command = f"{sys.executable} -m merlot.cli.main --help | head -c 10"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("text", "complete", "rest"),
    [
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        ("a;b;c", ["a", "b"], "c"),
        ("select ';', \"x;\" , `y;` ; z", ["select ';', \"x;\" , `y;`"], " z"),
        ("select 'it''s;' ;", ["select 'it''s;'"], ""),
        ("-- a;\nselect 1;", ["-- a;\nselect 1"], ""),
        ("/* ; */ ; select 1 - 2 / 3;", ["select 1 - 2 / 3"], ""),
        ("/* a /* b */ ; */ select 1;", ["/* a /* b */ ; */ select 1"], ""),
        ("/* a /* b */ ; select 1;", [], "/* a /* b */ ; select 1;"),
        ("select 'open; ", [], "select 'open; "),
        ("select /* open; ", [], "select /* open; "),
    ],
)
def test_statements_are_split(text: str, complete: list[str], rest: str) -> None:
    assert statements.split(text) == (complete, rest)


def test_tab_completes_names_and_words(node: Any) -> None:
    assert run(["apply", "-f", str(FLIGHTS)]) == 0
    complete = Completer(NodeClient(node.url))
    assert complete.completions("dep_") == ["dep_delay", "dep_time"]
    assert complete.completions("fli") == ["flight", "flights"]
    assert complete.completions("SEL") == ["SELECT"]
    assert complete.completions("gro") == ["group by"]
    assert [complete("minl", state) for state in (0, 1)] == ["minlong(", None]


def test_tab_completes_words_without_a_node() -> None:
    assert Completer(NodeClient(f"http://127.0.0.1:{free_port()}")).completions("limi") == ["limit"]


def test_set_is_an_option_of_the_session() -> None:
    assert statements.session_option("set timeoutMs = 500") == ("timeoutMs", "500")
    assert statements.session_option("SET a='b c'") == ("a", "b c")
    assert statements.session_option("-- budget\nSET /* ms */ timeoutMs=5 -- a second less") == ("timeoutMs", "5")
    assert statements.session_option("SET a='-- b'") == ("a", "-- b")
    assert statements.session_option("SELECT 1") is None
