"""`merlot access`: check an access document, make hashes for it, and convert Pinot's principals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from merlot.cli import output
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural

if TYPE_CHECKING:
    from merlot.security.rules import AccessRules

app = typer.Typer(help="Check an access document, hash a password, or import Pinot's principals.", no_args_is_help=True)

Document = Annotated[Path, typer.Argument(metavar="FILE", help="The access document.", show_default=False)]


@app.command()
def check(file: Document) -> None:
    """Say whether processes would take an access document, and what is wrong with it.

    Files that it names are read. Row filters and masks are parsed if the engine is installed; whether tables have
    their columns shows when they are queried.
    """
    from merlot.errors import InvalidInputError
    from merlot.security.follow import AccessFile
    from merlot.spec.manifest import ManifestError
    from merlot.spec.manifest.access_document import load_access

    try:
        rules = AccessFile(file, load_access).read()
    except ManifestError as error:
        details = [f"line {problem.line}: {problem}" if problem.line else str(problem) for problem in error.problems]
        raise CommandError(f"{file} would be refused:", details) from error
    except InvalidInputError as error:
        raise UsageError(str(error)) from error
    problems = _sql_problems(rules)
    if problems:
        raise CommandError(f"{file} has predicates or masks that are not SQL:", problems)
    roles = plural(len(rules.access.grants), "role")
    output.say(f"{file} is right: {plural(len(rules.users), 'user')}, {plural(len(rules.tokens), 'token')}, {roles}")


@app.command("hash-password")
def hash_password(
    cost: Annotated[int, typer.Option("--cost", min=4, max=15, help="Each more doubles the time of a check.")] = 12,
) -> None:
    """Print the bcrypt hash of a password, which is read from the terminal, or from standard input if that is none."""
    from merlot.security.passwords import hash_password as hashed

    output.say(hashed(_password(), cost))


@app.command("import")
def import_principals(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Pinot's properties, with access.control.principals.", show_default=False),
    ],
    cost: Annotated[int, typer.Option("--cost", min=4, max=15, help="Cost of the hashes.")] = 12,
) -> None:
    """Turn Pinot's principals of basic authentication into an access document, with hashes in place of passwords.

    The document goes to standard output, and a line for each setting that has no equivalent to standard error.
    """
    import yaml

    from merlot.errors import InvalidInputError
    from merlot.security.passwords import hash_password as hashed
    from merlot.security.pinot_principals import convert, read_properties

    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    try:
        converted = convert(read_properties(text), lambda password: hashed(password, cost))
    except InvalidInputError as error:
        raise UsageError(f"{file}: {error}") from error
    output.say(yaml.safe_dump(converted.document, sort_keys=False, allow_unicode=True).rstrip("\n"))
    for note in converted.notes:
        output.warn(f"note: {note}")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    import getpass

    password = getpass.getpass("password: ")
    if getpass.getpass("again: ") != password:
        raise UsageError("the two passwords differ: try again")
    return password


def _sql_problems(rules: AccessRules) -> list[str]:
    """Return the row filters and masks that are not SQL expressions; none if the engine is not installed."""
    try:
        from merlot.errors import InvalidInputError
        from merlot.sql.parse import parse
    except ModuleNotFoundError:
        return []
    problems = []
    for role, grants in rules.access.grants.items():
        texts = [str(each) for grant in grants for each in (*grant.view.row_filters, *grant.view.masks.values())]
        for text in texts:
            try:
                parse(f"SELECT COUNT(*) FROM t WHERE ({text}) IS NOT NULL")
            except InvalidInputError as error:
                problems.append(f"role {role}: {text!r}: {error}")
    return problems
