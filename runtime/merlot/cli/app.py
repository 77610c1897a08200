"""Subcommands of `merlot`."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import merlot
from merlot.cli import (
    access,
    advise,
    apply,
    backfill,
    commands,
    delete,
    drain,
    get,
    importing,
    node_tls,
    output,
    query,
    rebalance,
    recover,
    rollups,
    segment,
    stream,
    upserts,
)
from merlot.cli.commands import ROLES
from merlot.cli.login import log_in
from merlot.cli.starting import HELP_OPTIONS, exit_code, role_command


class _CommandGroup(TyperGroup):
    """Group of commands that lists the roles without importing them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(commands.help_text())

    def list_commands(self, ctx: Any) -> list[str]:
        return ["serve", *super().list_commands(ctx), *(name for name in ROLES if name != "serve")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in ROLES:
            return TyperCommand(cmd_name, help=ROLES[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in ROLES:
            return args[0], role_command(args[0]), args[1:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="merlot",
    cls=_CommandGroup,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)


def _version_and_exit(value: bool) -> None:
    if value:
        show_version()
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version_and_exit, is_eager=True, help="Show the version and exit.")
    ] = False,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="User to log in as; the password is in MERLOT_PASSWORD, or asked."),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="File with a bearer token to log in with.")
    ] = None,
) -> None:
    """Take options of `merlot` itself, and log in with them for the command that follows."""
    log_in(user, token_file)


app.command("apply")(apply.apply)
app.add_typer(access.app, name="access")
app.command("import")(importing.import_configs)
app.command("rebalance")(rebalance.rebalance)
app.command("drain")(drain.drain)
app.command("undrain")(drain.undrain)
app.add_typer(get.app, name="get")
app.command("query")(query.query)
app.command("advise")(advise.advise)
app.command("backfill")(backfill.backfill)
app.command("recover")(recover.recover)
app.command("undelete")(recover.undelete)
app.add_typer(segment.app, name="segment")
app.add_typer(stream.app, name="stream")
app.add_typer(rollups.app, name="rollup")
app.add_typer(upserts.app, name="upsert")
app.add_typer(delete.app, name="delete")
node_tls.add_to(app)


@app.command("version")
def show_version() -> None:
    """Show the version."""
    output.say(f"merlot {merlot.__version__}")


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return its exit code."""
    return exit_code(lambda: app(args=list(arguments), prog_name="merlot"))
