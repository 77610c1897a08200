"""`merlot query` against prepared broker answers."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from merlot.cli.main import run
from merlot.testing.patience import PATIENCE_S

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def carriers(node: Any, broker_answer: Any) -> Any:
    """A node with one answer ready."""
    rows = [["UA", 58665, 0.5, True], ["B6", 54635, None, False]]
    names, types = ["carrier", "count(*)", "late", "big"], ["STRING", "LONG", "DOUBLE", "BOOLEAN"]
    stats = {"totalDocs": 336776, "numDocsScanned": 113300, "numSegmentsQueried": 366, "numSegmentsProcessed": 365}
    node.answers.append(broker_answer(names, types, rows, **stats))
    return node


def test_answer_is_a_table(carriers: Any, capsys: Captured) -> None:
    assert run(["query", "SELECT 1", "--timing"]) == 0
    captured = capsys.readouterr()
    header, rule, *rows = captured.out.splitlines()
    assert header.split() == ["carrier", "count(*)", "late", "big"]
    assert set(rule) == {"─"}
    assert [row.split() for row in rows] == [["UA", "58665", "0.5", "true"], ["B6", "54635", "NULL", "false"]]
    assert rows[0].index("58665") + 5 == header.index("count(*)") + 8
    assert captured.err.startswith("(2 rows in ")
    assert captured.err.endswith("113,300 of 336,776 docs scanned; 365 of 366 segments)\n")
    assert carriers.asked == [{"sql": "SELECT 1"}]


def test_answer_is_vertical(carriers: Any, capsys: Captured) -> None:
    assert run(["query", "SELECT 1", "-o", "vertical"]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "── 1 ──────",
        "carrier   UA",
        "count(*)  58665",
        "late      0.5",
        "big       true",
    ]


def test_data_does_not_steer_the_terminal(node: Any, broker_answer: Any, capsys: Captured) -> None:
    node.answers.append(broker_answer(["a"], ["STRING"], [["x\x1b[2Jy\nz é"]]))
    assert run(["query", "SELECT a"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "x\\x1b[2Jy\\nz é"


def test_answer_is_csv(carriers: Any, capsys: Captured) -> None:
    assert run(["query", "SELECT 1", "-o", "csv"]) == 0
    assert capsys.readouterr().out == "carrier,count(*),late,big\nUA,58665,0.5,true\nB6,54635,,false\n"


def test_answer_is_json(carriers: Any, capsys: Captured) -> None:
    assert run(["query", "SELECT 1", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[1] == {"carrier": "B6", "count(*)": 54635, "late": None, "big": False}


def test_no_rows_are_an_empty_list_and_equal_labels_stay_apart(node: Any, broker_answer: Any, capsys: Captured) -> None:
    node.answers += [broker_answer(["a"], ["INT"], []), broker_answer(["a", "a"], ["INT", "INT"], [[1, 2]])]
    assert run(["query", "-o", "json", "select 1; select 2"]) == 0
    assert capsys.readouterr().out == '[]\n[{"a": 1, "a_1": 2}]\n'


def test_options_are_passed_on(carriers: Any) -> None:
    assert run(["query", "SELECT 1", "--option", "timeoutMs=5", "--option", "a = b"]) == 0
    assert carriers.asked[0]["queryOptions"] == "timeoutMs=5;a=b"


def test_warnings_are_shown_beside_the_rows(node: Any, broker_answer: Any, capsys: Captured) -> None:
    node.answers.append(broker_answer(["a"], ["INT"], [[1]], queryWarnings=["unknown query option ignored name=b"]))
    assert run(["query", "-o", "csv", "SELECT 1", "--option", "b=2"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("a\n1\n", "warning: unknown query option ignored name=b\n")


def test_script_is_read_from_standard_input(
    node: Any, broker_answer: Any, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    node.answers += [broker_answer(["a"], ["INT"], [[number]]) for number in (1, 2)]
    script = "SET timeoutMs = 7;\nSELECT ';' -- one; two\n;\n\nSELECT 2 /* ; */"
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    assert run(["query", "-o", "csv"]) == 0
    assert capsys.readouterr().out == "a\n1\na\n2\n"
    assert [one["sql"] for one in node.asked] == ["SELECT ';' -- one; two", "SELECT 2 /* ; */"]
    assert {one["queryOptions"] for one in node.asked} == {"timeoutMs=7"}


def test_exception_is_an_error(node: Any, capsys: Captured) -> None:
    node.answers.append({"exceptions": [{"errorCode": 190, "message": "table does not exist table=x"}]})
    assert run(["query", "SELECT * FROM x"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: table does not exist table=x (error 190)\n")


@pytest.mark.parametrize("how", ["table", "csv", "json", "vertical"])
def test_failed_query_shows_no_header(node: Any, broker_answer: Any, capsys: Captured, how: str) -> None:
    failed = {"errorCode": 250, "message": "timed out"}
    node.answers.append({**broker_answer(["a", "b"], ["INT", "INT"], []), "exceptions": [failed]})
    assert run(["query", "SELECT a, b FROM x", "-o", how]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: timed out (error 250)\n")


def test_partial_answer_is_an_error_after_its_rows(node: Any, broker_answer: Any, capsys: Captured) -> None:
    node.answers.append(broker_answer(["a"], ["INT"], [[1]], numServersQueried=2))
    assert run(["query", "SELECT a FROM x"]) == 1
    captured = capsys.readouterr()
    assert "1" in captured.out
    assert captured.err == (
        "warning: the rows above are not the whole answer\nerror: only 1 of 2 servers answered: try again\n"
    )


def test_a_controller_hands_the_query_on(node: Any, capsys: Captured) -> None:
    node.answers.append(web.Response(status=404, text="404: Not Found"))
    assert run(["query", "SELECT 1"]) == 1
    assert "no broker is live" in capsys.readouterr().err


@pytest.mark.parametrize("sql", ["", "  ; -- nothing\n;"])
def test_no_sql_is_wrong_usage(sql: str, node: Any, capsys: Captured) -> None:
    assert run(["query", sql]) == 2
    assert "no SQL given" in capsys.readouterr().err


def test_what_is_no_option_is_wrong_usage(node: Any, capsys: Captured) -> None:
    assert run(["query", "SELECT 1", "--option", "x"]) == 2
    assert capsys.readouterr().err == "error: not an option: 'x'; write --option timeoutMs=500\n"


def test_interrupt_ends_quietly(node: Any) -> None:
    command = [sys.executable, "-m", "merlot.cli.main", "query", "SELECT 1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert node.is_hanging.wait(PATIENCE_S)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")


def test_conversation(node: Any, broker_answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    wrong = {"exceptions": [{"errorCode": 150, "message": "cannot parse"}]}
    node.answers += [broker_answer(["a"], ["INT"], [[4711]]), wrong, broker_answer(["a"], ["INT"], [[4712]])]
    terminal = Terminal([sys.executable, "-m", "merlot.cli.main", "query"])
    terminal.expect("merlot> ")
    terminal.send("SELECT a")
    terminal.expect("...> ")
    terminal.send("FROM x;")
    terminal.expect("4711")
    terminal.expect("(1 row in ")
    terminal.expect("merlot> ")
    terminal.send("SELEC;")
    terminal.expect("error: cannot parse (error 150)")
    terminal.send("\\timing")
    terminal.expect("timing is off")
    terminal.send("\\o csv")
    terminal.send("SELECT a FROM x;")
    terminal.expect("4712")
    terminal.send("\\nonsense")
    terminal.expect("no such command: \\nonsense")
    terminal.send("\\q")
    assert terminal.wait() == 0
    assert node.asked[0]["sql"] == "SELECT a\nFROM x"
    assert "SELECT a" in (tmp_path / "merlot" / "query_history").read_text()


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(self, command: list[str]) -> None:
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            os.execvp(command[0], command)
        self._text = ""

    def expect(self, text: str) -> None:
        """Wait until the text has been written; forgets everything up to it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._text:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self._text!r}"
            if select.select([self._descriptor], [], [], 1)[0]:
                self._text += os.read(self._descriptor, 4096).decode()
        self._text = self._text.partition(text)[2]

    def send(self, line: str) -> None:
        os.write(self._descriptor, f"{line}\n".encode())

    def wait(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self._descriptor)
        return code
