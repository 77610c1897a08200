"""Logins outside of a cluster: a kubeconfig whose user is known by what a program says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml
from tests.kube.operator_parts import Api, Operator, eventually, write_kubeconfig
from tests.kube.test_operator import flights

from merlot_operator import crds
from merlot_operator.kube.client import Kube
from merlot_operator.kube.kinds import TABLES
from merlot_operator.kube.login import login

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

PLUGIN = """#!{python}
import json, pathlib
calls = pathlib.Path({calls!r})
calls.write_text(calls.read_text() + "x")
tokens = {tokens!r}
token = tokens[min(len(calls.read_text()), len(tokens)) - 1]
credential = {{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}}
print(json.dumps({{**credential, "status": {{"token": token}}}}))
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """A file with a letter for each call of the plugin."""
    path = tmp_path / "calls"
    path.write_text("")
    return path


def with_plugin(api: Api, folder: Path, calls: Path, *tokens: str) -> Path:
    """A kubeconfig whose plugin says one token after the other, and the last one for ever."""
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN.format(python=sys.executable, calls=str(calls), tokens=tokens))
    plugin.chmod(0o755)
    path = write_kubeconfig(folder / "plugged", api.url, "")
    document = yaml.safe_load(path.read_text())
    command: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    document["users"][0]["user"] = {"exec": command | {"interactiveMode": "Never"}}
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_operator_logs_in_by_a_plugin(api: Api, settings: dict[str, str], tmp_path: Path, calls: Path) -> None:
    settings = {**settings, "KUBECONFIG": str(with_plugin(api, tmp_path, calls, api.token))}
    with Operator(settings, tmp_path / "operator.log", program="merlot_operator", is_fresh=True) as operator:
        api.create("tables", flights())
        eventually(lambda: api.reason("Accepted"), "True/Valid", log=lambda: operator.log)
    assert calls.read_text()


def test_the_kinds_are_installed_by_a_plugins_login(
    api: Api, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _use(monkeypatch, with_plugin(api, tmp_path, calls, api.token))
    assert crds.main() == 0
    assert "tables.merlot.dev" in capsys.readouterr().out
    assert calls.read_text()


def test_a_plugin_without_the_client_is_named(
    api: Api, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _use(monkeypatch, with_plugin(api, tmp_path, calls, api.token))
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    assert crds.main() == 1
    assert "logs in by exec: run `pip install -e '.[operator-dev]'`" in capsys.readouterr().err
    assert not calls.read_text()


def test_a_plugin_that_fails_is_told(
    api: Api, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _use(monkeypatch, with_plugin(api, tmp_path, calls, api.token))
    (tmp_path / "plugin").write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    assert crds.main() == 1
    assert "gave no credentials" in capsys.readouterr().err


async def test_a_token_that_has_run_out_is_asked_for_anew_and_nobody_is_cut_off(
    api: Api, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, with_plugin(api, tmp_path, calls, "too old", api.token))
    kube = Kube(kopf.OperatorSettings())
    try:
        lists = await asyncio.gather(*(kube.list(TABLES, api.namespace) for _ in range(20)))
    finally:
        await kube.close()
    assert lists == [[]] * 20
    assert len(calls.read_text()) == 2


def test_a_plain_kubeconfig_needs_no_client(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "plain", api.url, "a token")))
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    assert login(kopf.OperatorSettings()).token == "a token"


def _use(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    # The client reads that variable when it is imported.
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
