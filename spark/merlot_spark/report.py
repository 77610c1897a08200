"""Report of a build job: as a value, as JSON for machines, as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merlot.cluster.segments.coverage import RowCounts
from merlot.ingest.bad_rows import BadRows
from merlot_spark.publish import Publication
from merlot_spark.serving import Served

SHOWN_SEGMENTS = 5
SHOWN_PLANNED = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that a job would make to the segments of its table, by name."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]

    @classmethod
    def of(cls, publication: Publication) -> Plan:
        """Return the plan that a controller answers to a dry run."""
        added = tuple(name for name in publication.published if name not in set(publication.replaced))
        return cls(added, publication.replaced, publication.removed, publication.unchanged)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON for a file or a log line."""
        return {name: sorted(names) for name, names in self._by_verb().items()}

    def to_lines(self) -> list[str]:
        """Return a line for each kind of change, with the first segments."""
        return [_planned(verb, sorted(names)) for verb, names in self._by_verb().items() if names]

    def _by_verb(self) -> dict[str, tuple[str, ...]]:
        return {"add": self.added, "replace": self.replaced, "remove": self.removed, "leave": self.unchanged}


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """Counts of one job. `published` is None if nothing was published, because no controller was given."""

    table: str
    rows_in: int
    """Rows of the source, including bad rows and rows that the filter leaves out."""
    rows_out: int
    rows_filtered: int = 0
    """Good rows that the filter left out."""
    num_files: int | None = None
    """Number of the source's files; None if it was a DataFrame."""
    empty_files: int = 0
    """Number of files of zero bytes, which hold nothing."""
    rows_outside: int = 0
    """Rows that were left out because their time is not in the requested window."""
    records: tuple[Mapping[str, Any], ...] = ()
    """Records of every segment of the batch; publishing adds their source and custom map."""
    bad: BadRows = field(default_factory=BadRows)
    cut: Mapping[str, int] = field(default_factory=dict)
    """Number of texts cut to the column's maxLength, by column."""
    absent_columns: tuple[str, ...] = ()
    """Columns of the schema that the source lacks: null in every row."""
    segments: tuple[str, ...] = ()
    """`name@crc` of every segment of the batch."""
    segments_uploaded: int = 0
    """Number of files that the deep store did not have yet."""
    unpartitioned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Segments whose rows are not partitioned as the table declares, with the reason by column."""
    published: int | None = None
    unchanged: int = 0
    """Segments that the table already held in this very version."""
    removed: int = 0
    replaced: int = 0
    """Segments that were published in place of an older version."""
    plan: Plan | None = None
    """Changes that the job would make. Set by a dry run only, which has made none of the changes that are counted
    here."""
    rows: RowCounts | None = None
    """Rows of the table before and after, as the controller reports them, for a dry run too; None if no controller was
    given, or it is too old to report them."""
    served: Served | None = None
    """Result of waiting for servers to answer for the batch's segments; None if the job did not wait."""
    bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration by phase: session, build, publish, serve."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON for a file, a termination message, or a log line."""
        return {
            "table": self.table,
            "rowsIn": self.rows_in,
            "rowsOut": self.rows_out,
            "rowsOutside": self.rows_outside,
            "rowsFiltered": self.rows_filtered,
            **({} if self.num_files is None else {"files": self.num_files, "filesEmpty": self.empty_files}),
            "badRows": self.bad.to_json(),
            "cutTexts": dict(self.cut),
            "absentColumns": list(self.absent_columns),
            "segments": len(self.segments),
            "segmentsUploaded": self.segments_uploaded,
            "segmentsUnpartitioned": len(self.unpartitioned),
            "unpartitioned": {name: dict(self.unpartitioned[name]) for name in self._shown_unpartitioned()},
            "segmentsPublished": self.published,
            "segmentsUnchanged": self.unchanged,
            "segmentsRemoved": self.removed,
            "segmentsReplaced": self.replaced,
            **({} if self.plan is None else {"dryRun": True, "plan": self.plan.to_json()}),
            **({} if self.rows is None else _rows_to_json(self.rows)),
            **({} if self.served is None else {"segmentsNotServed": len(self.served.waiting)}),
            "bytes": self.bytes,
            "seconds": {phase: round(seconds, 3) for phase, seconds in self.seconds.items()},
        }

    def to_text(self) -> str:
        """Return a few lines for people, bad rows with their samples."""
        build_seconds = self.seconds.get("build", 0.0)
        speed = f", {self.rows_out / build_seconds:,.0f} rows/s" if build_seconds else ""
        lines = [
            f"{self.table}: {self.rows_out:,} of {self.rows_in:,} rows stored ({build_seconds:.1f} s{speed})",
            f"{len(self.segments):,} segments, {self.bytes / 1e6:,.1f} MB",
            *([self._publication()] if self.plan is None else self._planned(self.plan)),
        ]
        if self.rows_filtered:
            lines.append(f"{self.rows_filtered:,} rows left out by the filter")
        if self.empty_files:
            lines.append(f"{self.empty_files:,} of {self.num_files:,} files are empty")
        if self.absent_columns:
            lines.append(f"columns that the source lacks, null in every row: {', '.join(self.absent_columns)}")
        lines += [f"{count:,} texts cut to the maxLength of {column}" for column, count in self.cut.items()]
        if self.served is not None and self.served.waiting:
            lines.append(
                f"{len(self.served.waiting):,} segments are published and not served yet ({self.served.reason}): "
                "queries do not see them before servers have loaded them"
            )
        lines += self._warnings()
        lines += self.bad.to_lines()
        return "\n".join(lines)

    def _warnings(self) -> list[str]:
        if not self.unpartitioned:
            return []
        head = (
            f"warning: {len(self.unpartitioned):,} segments are not partitioned as declared, and not pruned by "
            "partition; partition the source, or set spec.partitioning.enforce: repartition"
        )
        shown = [(name, self.unpartitioned[name]) for name in self._shown_unpartitioned()]
        return [head, *(f"  {name} {column}: {why}" for name, causes in shown for column, why in causes.items())]

    def _shown_unpartitioned(self) -> list[str]:
        return sorted(self.unpartitioned)[:SHOWN_SEGMENTS]

    def _planned(self, plan: Plan) -> list[str]:
        lines = ["dry run: nothing was written", *plan.to_lines()]
        if self.rows is not None:
            lines.append(f"rows of the table: {self.rows.before:,} -> {self.rows.after:,}")
        return lines

    def _publication(self) -> str:
        if self.published is None:
            return f"not published: no controller was given; {self.segments_uploaded:,} new files in the deep store"
        replaced = f", {self.replaced:,} replaced" if self.replaced else ""
        removed = f", {self.removed:,} removed" if self.removed else ""
        if self.rows is None:
            return f"{self.published:,} segments published{replaced}, {self.unchanged:,} unchanged{removed}"
        replaced += f" ({self.rows.replaced:,} -> {self.rows.replacing:,} rows)" if self.replaced else ""
        removed += f" ({self.rows.removed:,} rows)" if self.removed else ""
        text = f"{self.published:,} segments published{replaced}, {self.unchanged:,} unchanged{removed}"
        return f"{text}\nrows of the table: {self.rows.before:,} -> {self.rows.after:,}"


def _planned(verb: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_PLANNED:,} more" if len(names) > SHOWN_PLANNED else ""
    return f"would {verb} {len(names):,} segments: {', '.join(names[:SHOWN_PLANNED])}{more}"


def _rows_to_json(rows: RowCounts) -> dict[str, int]:
    return {
        "rowsReplaced": rows.replaced,
        "rowsReplacing": rows.replacing,
        "rowsRemoved": rows.removed,
        "rowsBefore": rows.before,
        "rowsAfter": rows.after,
    }
