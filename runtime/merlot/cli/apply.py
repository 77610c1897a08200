"""`merlot apply`: send manifests to a node."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url
from merlot.cli.errors import ApiError, CommandError, UsageError
from merlot.cli.output import plural

_TABLE = re.compile(r"^kind: *Table *(#.*)?$", re.MULTILINE)
"""Pattern of a file with a table. Such files are applied first, and the manifests that refer to their tables after
them."""


def apply(
    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="YAML file with one or more manifests, a folder of them, or - for standard input; may be repeated.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Create or change tables, merge tasks and upsert configs from manifests.

    A wrong manifest changes nothing, and all of its problems are shown at
    once. Applying the same manifest again changes nothing either.

    [bold]Examples[/bold]

      merlot apply -f examples/flights/table.yaml

      cat table.yaml | merlot apply -f - --dry-run
    """
    sources = [source for name in file for source in _sources(name)]
    sources.sort(key=lambda source: not _TABLE.search(source[1]))
    client = NodeClient(url)
    failed = 0
    for name, text in sources:
        try:
            _show_applied(_apply(client, text, dry_run=dry_run), dry_run=dry_run)
        except ApiError as error:
            if not error.details:
                raise
            failed += 1
            output.warn(f"{name}: {plural(len(error.details), 'problem')}, nothing is applied")
            for detail in error.details:
                output.warn(f"  {detail}")
    if failed:
        raise CommandError(f"{plural(failed, 'manifest')} refused: correct what is listed above and apply again")


def _apply(client: NodeClient, text: str, *, dry_run: bool) -> Any:
    query = {"dryRun": "true"} if dry_run else None
    return client.post("/apply", text.encode(), "application/yaml", query)


def _sources(name: str) -> list[tuple[str, str]]:
    """Return the name and text of each file that the argument denotes; raise UsageError."""
    if name == "-":
        return [("standard input", sys.stdin.read())]
    path = Path(name)
    try:
        if not path.is_dir():
            return [(name, path.read_text())]
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml", ".json"))
        if not files:
            raise UsageError(f"no manifests in {name}: they end in .yaml, .yml or .json")
        return [(str(file), file.read_text()) for file in files]
    except FileNotFoundError:
        raise UsageError(f"no such file: {name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {name}: {error}") from None


def _show_applied(answer: Any, *, dry_run: bool) -> None:
    for applied in answer:
        output.say(f"{applied['kind'].lower()}/{applied['name']} {applied['result']}{' (dry run)' if dry_run else ''}")
        for warning in applied.get("warnings", ()):
            output.warn(f"warning: {warning}")
