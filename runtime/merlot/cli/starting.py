"""Start of a role, for which no other command is loaded. The only place where an error becomes a line and an exit
code.
"""

import gc
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer

from merlot.cli import output
from merlot.cli.errors import CommandError
from merlot.errors import MerlotError
from merlot.extras import lacks

INTERRUPTED = 130
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def run(arguments: Sequence[str]) -> int:
    """Run the role that a command line begins with; return its exit code."""
    name, *rest = arguments
    return exit_code(lambda: role_command(name)(args=rest, prog_name=f"merlot {name}"))


def exit_code(call: Callable[[], object]) -> int:
    """Run a command; return its exit code. A bug shows its traceback, an error never does."""
    try:
        call()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except CommandError as error:
        output.show_error(error)
        return error.exit_code
    except MerlotError as error:
        output.warn(f"error: {error}")
        return 1
    return 0


def _loaded_for_good(module: str) -> Any:
    """Import a module, and freeze its objects: they live as long as the process. Garbage collections that visited these
    170,000 objects took an eighth of the time of loading them."""
    gc.disable()
    try:
        loaded = import_module(module)
        gc.freeze()
    finally:
        gc.enable()
    return loaded


def role_command(name: str) -> Any:
    """Return the command of a role. A process imports its own role's module only."""
    try:
        module = _loaded_for_good(f"merlot.cli.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("merlot."):
            raise CommandError(f"`merlot {name}` is not part of this build: {error.name} is missing") from None
        raise CommandError(lacks(f"`merlot {name}`", "engine", error)) from None
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(name, context_settings=HELP_OPTIONS)(getattr(module, name))
    return typer.main.get_command(alone)
