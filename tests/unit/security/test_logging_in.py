"""How Merlot's own clients log in, and what `merlot access` says and makes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from tests.unit.security.callers import hashed

from merlot.cli import app
from merlot.cli.client import NodeClient
from merlot.cli.errors import UsageError
from merlot.errors import AccessDeniedError, InvalidInputError, NotAuthenticatedError
from merlot.security import own_credentials
from merlot.security.passwords import matches
from merlot_spark.publish import ControllerClient


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "USER", "PASSWORD", "PASSWORD_FILE"):
        monkeypatch.delenv(f"MERLOT_{name}", raising=False)


def test_credentials_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n".replace(" ", "-"))
    (tmp_path / "password").write_text("secret\n")
    given = own_credentials.authorization
    assert given({}) is None
    assert given({"MERLOT_TOKEN": "t", "MERLOT_USER": "ann"}) == "Bearer t"
    assert given({"MERLOT_TOKEN_FILE": str(tmp_path / "token")}) == "Bearer from-a-file"
    assert given({"MERLOT_USER": "ann", "MERLOT_PASSWORD_FILE": str(tmp_path / "password")}) == "Basic YW5uOnNlY3JldA=="
    for wrong in ({"MERLOT_USER": "ann"}, {"MERLOT_TOKEN": "a\nb"}, {"MERLOT_TOKEN_FILE": str(tmp_path / "none")}):
        with pytest.raises(InvalidInputError):
            given(wrong)


class Recorder(BaseHTTPRequestHandler):
    """Records the credentials of each request. Answers the status in the path's first part."""

    seen: list[str | None] = []  # noqa: RUF012 - one per server

    def do_GET(self) -> None:
        type(self).seen.append(self.headers.get("Authorization"))
        status = int(self.path.strip("/").split("/")[0] or 200)
        body = b'{"code": %d, "error": "said"}' % status
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Recorder.seen = []
    with HTTPServer(("127.0.0.1", 0), Recorder) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join()


def test_the_command_line_and_spark_jobs_send_them(
    server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    monkeypatch.setenv("MERLOT_TOKEN_FILE", str(token))
    for text in ("first", "renewed"):
        token.write_text(text)
        NodeClient(server).get("/200")
        ControllerClient(server).get("/200")
    assert Recorder.seen == ["Bearer first"] * 2 + ["Bearer renewed"] * 2
    for status, family in ((401, NotAuthenticatedError), (403, AccessDeniedError)):
        with pytest.raises(family):
            ControllerClient(server).get(f"/{status}")
    assert len(Recorder.seen) == 6, "a refusal is not tried again"


def test_a_url_holds_no_credentials() -> None:
    with pytest.raises(UsageError, match="a URL holds no credentials"):
        NodeClient("http://ann:secret@localhost:8099")


def test_options_log_in(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("MERLOT_PASSWORD", "secret")
    monkeypatch.setenv("MERLOT_TOKEN", "another")
    for name in (own_credentials.USER, own_credentials.TOKEN_FILE):
        monkeypatch.setenv(name, "")  # so that what logging in writes there ends with the test
    app.run(["--user", "ann", "rollup", "run", "x", "--url", f"{server}/403"])
    app.run(["--token-file", str(tmp_path / "token"), "get", "tables", "--url", f"{server}/403"])
    assert Recorder.seen[-1] == "Bearer t"
    assert app.run(["--user", "ann", "--token-file", "x", "version"]) == 2


DOCUMENT = f"""
users: [{{name: ann, passwordHash: {hashed("secret")!r}}}]
roles: [{{name: reader, grants: [{{rights: [query], tables: [t], rows: [ROWS]}}]}}]
bindings: [{{role: reader, users: [ann]}}]
"""


def test_a_document_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(DOCUMENT.replace("ROWS", "a = 1"))
    assert app.run(["access", "check", str(path)]) == 0
    assert "is right: 1 user, 0 tokens, 1 role" in capsys.readouterr().out
    path.write_text(DOCUMENT.replace("ROWS", "a = = 1"))
    assert app.run(["access", "check", str(path)]) == 1
    assert "role reader: 'a = = 1'" in capsys.readouterr().err
    path.write_text(DOCUMENT.replace("users: [ann]", "user: [ann]").replace("ROWS", "a"))
    assert app.run(["access", "check", str(path)]) == 1
    assert "line 4: bindings[0].user: unknown field; did you mean users?" in capsys.readouterr().err
    assert app.run(["access", "check", str(tmp_path / "none")]) == 2


def test_a_password_is_hashed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a secret\n"))
    assert app.run(["access", "hash-password", "--cost", "4"]) == 0
    printed = capsys.readouterr().out.strip()
    assert matches("a secret", printed.encode())


def test_principals_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pinot.conf"
    path.write_text("controller.admin.access.control.principals=ann\n...principals.ann.password=secret\n")
    assert app.run(["access", "import", str(path), "--cost", "4"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["bindings"] == [{"role": "ann", "users": ["ann"]}]
