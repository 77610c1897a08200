"""`merlot import`: convert Pinot's configs to manifests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural
from merlot.errors import InvalidInputError

if TYPE_CHECKING:
    from merlot.spec.manifest import Manifest, ManifestProblem


def import_configs(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Pinot's JSON: a schema and the table config of each half of the table, or one TableConfigs.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write the manifests to.", show_default=False),
    ] = None,
) -> None:
    """Turn Pinot's table config and schema into manifests.

    Manifests go to standard output, and a line for each setting that has no
    equivalent to standard error. If the manifests would be refused at apply,
    the problems are shown too, and the exit code is 1.

    [bold]Examples[/bold]

      merlot import tableConfig.json schema.json > table.yaml

      merlot import offline.json realtime.json schema.json -o table.yaml
    """
    # Loading YAML and the specification takes a quarter of a second, for which other commands need not wait.
    import yaml

    from merlot.pinot.configs.documents import convert
    from merlot.spec.manifest import ManifestError, load

    try:
        converted = convert([_document(path) for path in files])
    except InvalidInputError as error:
        raise UsageError(str(error)) from error
    text = yaml.safe_dump_all(converted.manifests, sort_keys=False, allow_unicode=True)
    if out is None:
        output.say(text.rstrip("\n"))
    else:
        try:
            out.write_text(text)
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error.strerror}") from error
    for note in converted.notes:
        output.warn(f"note: {note}")
    try:
        problems = _problems(load(text))
    except ManifestError as error:
        problems = list(error.problems)
    if problems:
        raise CommandError("the manifests need work before they can be applied:", list(map(str, problems)))
    if out is not None:
        output.say(f"{plural(len(converted.manifests), 'manifest')} in {out}")


def _problems(manifests: Sequence[Manifest]) -> list[ManifestProblem]:
    """Return what `apply` would refuse in addition: upserts, and expressions if the engine is installed to bind
    them."""
    from merlot.spec.manifest import upsert_checks
    from merlot.spec.table import Table

    problems: list[ManifestProblem] = []
    for table in manifests:
        if not isinstance(table, Table):
            continue
        upsert = table.spec.upsert
        if upsert is not None and upsert.config is not None:
            problems += upsert_checks.against_table(upsert.config, table.spec)
        with contextlib.suppress(ModuleNotFoundError):
            from merlot.ingest import stream_checks

            problems += stream_checks.problems_of(table.spec)
    return problems


def _document(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is no JSON object")
    return content
