"""Options of TLS that every command with --url has: whom to trust, and which certificate to show."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from merlot.security.tls import ClientTls

PANEL: Final = "TLS, for https:// URLs"
_FILES: ContextVar[tuple[Path | None, ...]] = ContextVar("files of the running command's TLS options")


def _file(flag: str, variable: str, text: str, shown_default: str | bool = False) -> Any:
    return typer.Option(
        flag, envvar=variable, metavar="FILE", help=text, show_default=shown_default, rich_help_panel=PANEL
    )


def _options(
    *,
    ca: Annotated[
        Path | None,
        _file(
            "--ca",
            "MERLOT_CA",
            "PEM file of the CAs that sign the node's certificate.",
            "the system's, or those of SSL_CERT_FILE",
        ),
    ] = None,
    cert: Annotated[
        Path | None, _file("--cert", "MERLOT_CERT", "PEM file of a certificate to show, if the node asks for one.")
    ] = None,
    key: Annotated[Path | None, _file("--key", "MERLOT_KEY", "PEM file of its key.")] = None,
) -> None:
    """Take the files of a command."""
    _FILES.set((ca, cert, key))


def speaks_tls(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, whose calls of nodes they then hold for."""
    signature = inspect.signature(command, eval_str=True)
    more = inspect.signature(_options, eval_str=True).parameters
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in signature.parameters.values()]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        _options(**{name: given.pop(name) for name in more})
        command(**given)

    run.__signature__ = signature.replace(parameters=[*own, *more.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *more.values())}
    return run


def add_to(app: typer.Typer) -> None:
    """Add the options to all commands of an application, and of its groups, that have --url."""
    for command in app.registered_commands:
        if command.callback is not None and "url" in inspect.signature(command.callback).parameters:
            command.callback = speaks_tls(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_to(group.typer_instance)


def tls_of_command() -> ClientTls:
    """Return the TLS of the running command; outside of one, that of the environment."""
    from merlot.security.tls import ClientTls

    files = _FILES.get(None)
    return ClientTls.of_environment() if files is None else ClientTls(*files)
