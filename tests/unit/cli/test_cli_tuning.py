"""Options that tune a role: each setting has one, and a variable of the environment, wherever the role runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from merlot.broker.settings import BrokerSettings
from merlot.cli.broker_tuning import of_broker
from merlot.cli.server_tuning import of_server
from merlot.cli.starting import role_command
from merlot.cli.tuning import takes
from merlot.server.settings import ServerSettings

GIVEN = {"INT": "77", "SIZE": "3m"}
READ = {"INT": 77, "SIZE": 3 << 20}


def told(make: Callable[..., Any], arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """What a command that is given these makes of them."""
    app, found = typer.Typer(), []

    @app.command()
    @takes(settings=make)
    def command(*, settings: Any, other: str = "") -> None:
        found.append((settings, other))

    result = CliRunner().invoke(app, [*arguments, "--other", "own"], env=dict(environment or {}))
    assert result.exit_code == 0, result.output
    ((settings, other),) = found
    assert other == "own"
    return settings


def options(role: str) -> list[Any]:
    return [one for one in role_command(role).params if getattr(one, "rich_help_panel", None) == "Tuning"]


def value_of(option: Any, of: Mapping[str, Any]) -> Any:
    return of["SIZE" if option.metavar == "SIZE" else "INT"]


ROLES = [("server", of_server, ServerSettings()), ("broker", of_broker, BrokerSettings())]


@pytest.mark.parametrize(("role", "make", "default"), ROLES)
def test_what_nobody_sets_is_as_the_role_has_it(role: str, make: Callable[..., Any], default: Any) -> None:
    assert told(make, []) == default


@pytest.mark.parametrize(("role", "make", "default"), ROLES)
@pytest.mark.parametrize("is_flag", [True, False])
def test_each_setting_has_an_option_and_a_variable(
    role: str, make: Callable[..., Any], default: Any, is_flag: bool
) -> None:
    changed = set()
    for option in options(role):
        given = value_of(option, GIVEN)
        found = told(make, [option.opts[0], given]) if is_flag else told(make, [], {option.envvar: given})
        ((name, value),) = (
            (one.name, getattr(found, one.name))
            for one in fields(found)
            if getattr(found, one.name) != getattr(default, one.name)
        )
        assert value == value_of(option, READ)
        assert option.envvar == "MERLOT_" + option.opts[0].removeprefix("--").replace("-", "_").upper()
        changed.add(name)
    assert changed == {one.name for one in fields(default)}


def test_a_node_takes_what_its_server_and_its_broker_take() -> None:
    names = [{one.opts[0] for one in options(role)} for role in ("serve", "server", "broker")]
    assert names[0] == names[1] | names[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--query-threads", "0"], "greater than or equal to 1"),
        (["--decoded-cache", "much"], "no size: much; write one such as 512m or 4g"),
    ],
)
def test_a_setting_that_cannot_be_is_wrong_usage(arguments: list[str], said: str) -> None:
    app = typer.Typer()
    app.command()(takes(settings=of_server)(lambda *, settings: None))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
