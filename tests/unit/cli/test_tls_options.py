"""Options of TLS: of roles, and of commands that call a node."""

from pathlib import Path

import pytest
from aiohttp import web
from tests.support.apps import serve_app
from tests.support.certificates import CertificateFolder

from merlot.cli.app import run
from merlot.cli.tls import files_for_zookeeper, of_tls
from merlot.errors import InvalidInputError
from merlot.security.tls import Certificates

ROLE = ["broker", "--zk", "127.0.0.1:1/x"]


@pytest.mark.parametrize("role", ["serve", "controller", "broker", "server", "minion"])
@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (["--tls-cert", "a"], "--tls-key, --tls-ca"),
        (["--tls-cert", "a", "--tls-key", "b"], "--tls-ca"),
        (["--tls-require-clients"], "--tls-cert, --tls-key, --tls-ca"),
    ],
)
def test_half_of_the_files_is_refused(
    role: str, given: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = [] if role == "serve" else ["--zk", "x"]
    needed += ["--deep-store", "/x", "--data-dir", "/x"] if role == "server" else []
    assert run([role, *needed, *given]) == 2
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"{missing} is missing" in error.replace(", ", ", ")


def test_unreadable_files_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "no.crt")
    assert run([*ROLE, "--tls-cert", missing, "--tls-key", missing, "--tls-ca", missing]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: TLS file cannot be read file={missing}")
    assert error.count("\n") == 1


def test_zookeeper_is_called_with_the_files_of_the_process(tmp_path: Path) -> None:
    files = CertificateFolder(tmp_path).files()
    certificates = of_tls(tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca)
    assert files_for_zookeeper(certificates, is_wanted=True) == files
    assert files_for_zookeeper(certificates, is_wanted=False) is None
    with pytest.raises(InvalidInputError, match="--zk-tls needs files"):
        files_for_zookeeper(of_tls(), is_wanted=True)


@pytest.fixture
def app() -> web.Application:
    async def instances(_: web.Request) -> web.Response:
        return web.json_response({"instances": [], "details": []})

    app = web.Application()
    app.add_routes([web.get("/instances", instances)])
    return app


def test_a_command_trusts_the_ca_that_it_is_given(
    app: web.Application, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CertificateFolder(tmp_path / "ours").files()
    other = CertificateFolder(tmp_path / "other").files()
    with serve_app(app, Certificates(files)) as url:
        command = ["get", "instances", "--url", url]
        assert run([*command, "--ca", str(files.ca)]) == 0
        monkeypatch.setenv("MERLOT_CA", str(files.ca))
        assert run(command) == 0
        assert run([*command, "--ca", str(other.ca)]) == 1
        assert "check --url, and --ca" in capsys.readouterr().err
        assert run([*command, "--cert", str(files.cert)]) == 2
        assert "--cert and --key" in capsys.readouterr().err
        monkeypatch.delenv("MERLOT_CA")
        assert run(command) == 1
        monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
        assert run(command) == 0
        assert run(["get", "instances", "--url", url.replace("https", "http")]) == 1
        assert "write https://" in capsys.readouterr().err


def test_a_node_that_wants_certificates_gets_that_of_the_command(
    app: web.Application, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = CertificateFolder(tmp_path / "ours").files(requires_clients=True)
    with serve_app(app, Certificates(files)) as url:
        command = ["get", "instances", "--url", url, "--ca", str(files.ca)]
        assert run([*command, "--cert", str(files.cert), "--key", str(files.key)]) == 0
        assert run(command) == 1
        assert "--cert and --key" in capsys.readouterr().err
