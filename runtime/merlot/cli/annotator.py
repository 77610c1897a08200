"""Work of `merlot segment annotate`: read records from a node, and the missing facts from files. Loads the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merlot.catalog import annotation
from merlot.cli.client import NodeClient, path_of
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural
from merlot.cluster.records import AnnotationRecord, SegmentRecord
from merlot.errors import MerlotError
from merlot.spec import manifest
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore

BATCH = 100
"""Most annotations in one request to the controller, so that an interruption loses little."""


@dataclass(frozen=True, slots=True)
class AnnotationTarget:
    """Table to annotate, and its node. `deep_store` is the command line's, if given."""

    client: NodeClient
    table: Table
    deep_store: str | None

    def deep_store_of(self, record: SegmentRecord) -> str:
        """Return the URI of the deep store of a segment's file: that of the command line, or the table's, or the part
        of the file's URL before the table."""
        declared = self.table.spec.deep_store_uri
        return self.deep_store or declared or record.url.rsplit("/", 2)[0]


@dataclass
class AnnotationResult:
    """Names of segments by what became of them; `unpartitioned` and `failed` give the reasons."""

    complete: list[str] = field(default_factory=list)
    annotated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unpartitioned: dict[str, Mapping[str, str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def target(client: NodeClient, names: list[str], table_file: Path | None) -> tuple[Table, list[str]]:
    """Return the table and the segments that the command line names."""
    if table_file is None:
        if not names:
            raise UsageError("name a table: merlot segment annotate TABLE")
        stored = client.get(path_of("tables", names[0], "manifest"))["manifest"]
        return manifest.from_stored(stored), names[1:]
    try:
        tables = manifest.load_tables(table_file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {table_file}: {error}") from None
    if len(tables) != 1:
        raise UsageError(f"{table_file} has {plural(len(tables), 'table')}, one is needed")
    return tables[0], names


def read_records(client: NodeClient, table: str, wanted: Sequence[str]) -> list[SegmentRecord]:
    """Return the records of the wanted segments, or of all segments."""
    statuses: dict[str, Any] = client.get(path_of("segments", table, "metadata"))
    missing = [name for name in wanted if name not in statuses]
    if missing:
        raise CommandError(f"no such segment in {table}: {', '.join(missing[:5])}")
    return [SegmentRecord.model_validate(statuses[name]) for name in sorted(wanted or statuses)]


def annotate(
    target: AnnotationTarget,
    records: Sequence[SegmentRecord],
    show_progress: Callable[[int, int, str], None],
    *,
    dry_run: bool,
) -> AnnotationResult:
    """Examine the files of segments with incomplete records, and send what is missing."""
    spec = target.table.spec
    lacking = [record for record in records if annotation.lacks_info(record, spec)]
    outcome = AnnotationResult(
        complete=sorted({record.name for record in records} - {record.name for record in lacking})
    )
    pending: list[AnnotationRecord] = []
    for number, record in enumerate(lacking, start=1):
        show_progress(number, len(lacking), record.name)
        try:
            finding = annotation.examine(record, spec, DeepStore(target.deep_store_of(record)))
        except MerlotError as error:
            outcome.failed[record.name] = str(error)
            continue
        if finding.unpartitioned:
            outcome.unpartitioned[record.name] = finding.unpartitioned
        if finding.annotation is None:
            outcome.unchanged.append(record.name)
        else:
            pending.append(finding.annotation)
        if len(pending) >= BATCH:
            _send(target, pending, outcome, dry_run=dry_run)
            pending = []
    _send(target, pending, outcome, dry_run=dry_run)
    show_progress(0, 0, "")
    return outcome


def _send(
    target: AnnotationTarget, annotations: Sequence[AnnotationRecord], outcome: AnnotationResult, *, dry_run: bool
) -> None:
    if dry_run or not annotations:
        outcome.annotated += [added.name for added in annotations]
        return
    body = [added.model_dump(mode="json", by_alias=True, exclude_defaults=True) for added in annotations]
    path = path_of("segments", target.table.raw_name, "annotate")
    answer = target.client.post_json(path, {"annotations": body})
    outcome.annotated += answer["annotated"]
    outcome.unchanged += answer["unchanged"]
    outcome.replaced += answer["replaced"]
