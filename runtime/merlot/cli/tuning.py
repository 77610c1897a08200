"""Options that tune a role, the same in `merlot serve` and in a process of its own (ADR 27)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer

from merlot.cli.sizes import parse_size

PANEL = "Tuning"


def _variable(flag: str) -> str:
    """Return the environment variable of an option, by which pods are configured."""
    return f"MERLOT_{flag.removeprefix('--').replace('-', '_').upper()}"


def option(flag: str, text: str, *, least: int = 1, default: str | bool = True) -> Any:
    """Return an option with a number. default: text to show if the value says too little, such as a value that depends
    on the machine."""
    return typer.Option(flag, envvar=_variable(flag), min=least, help=text, show_default=default, rich_help_panel=PANEL)


def size_option(flag: str, text: str, *, default: str) -> Any:
    return typer.Option(
        flag,
        envvar=_variable(flag),
        parser=parse_size,
        metavar="SIZE",
        help=text,
        show_default=default,
        rich_help_panel=PANEL,
    )


def takes(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of each maker to a command. The command gets each maker's result as the keyword argument of that
    name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        more = {name: inspect.signature(make, eval_str=True).parameters for name, make in makers.items()}
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in signature.parameters.values()]
        options = [parameter for parameter in own if parameter.name not in makers]
        options += [parameter for parameters in more.values() for parameter in parameters.values()]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = {name: make(**{option: given.pop(option) for option in more[name]}) for name, make in makers.items()}
            command(**given, **made)

        run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return decorate
