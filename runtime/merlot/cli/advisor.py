"""Work of `merlot advise`: read the query log, fetch the sample, run the trials, choose. Loads the engine."""

from __future__ import annotations

import difflib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from merlot.advice.candidates import Candidate, candidates
from merlot.advice.change import edited, indexing_yaml
from merlot.advice.choice import MIN_GAIN, Choice, Measured, Tried, choose, helped
from merlot.advice.statistics import statistics
from merlot.advice.trial import Trial, answers, sample_of
from merlot.advice.workload import NormalizedQuery, Question, workload
from merlot.broker.planning.options import parse as parse_options
from merlot.catalog.transfer import check_room, fetch_segments
from merlot.cli.backfiller import read_table
from merlot.cli.client import NodeClient, path_of
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural, size
from merlot.cli.statements import is_blank, split
from merlot.cluster.records import SegmentRecord
from merlot.errors import InvalidInputError, MerlotError
from merlot.segment.immutable import ImmutableSegment
from merlot.spec import manifest
from merlot.spec.indexing import IndexingSpec
from merlot.spec.table import Table
from merlot.sql.normal_form import normal_form
from merlot.store.deepstore import DeepStore
from merlot.uris import http_url

MOST_QUESTIONS: Final = 60
"""Most queries that are tried: of the brokers' logs, those that took the longest in total; of a file, the first."""
MOST_CANDIDATES: Final = 24
"""Most candidates that are tried: the most promising ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """Options of a run of `merlot advise`."""

    client: NodeClient
    table: str
    queries: Path | None = None
    brokers: tuple[str, ...] = ()
    max_segments: int = 8
    max_rows: int = 2_000_000
    files: tuple[Path, ...] = ()
    max_bytes: int | None = None
    deep_store: str | None = None
    say: Callable[[str], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Answered:
    """Query on the sample, with its times before and after all changes that are advised."""

    sql: str
    count: float
    before_ms: float
    after_ms: float


@dataclass(frozen=True, slots=True)
class Advised:
    """Change that pays."""

    label: str
    gain: float
    """Share of the total time that it saves, in addition to the changes before it."""
    helps: tuple[int, ...]
    num_bytes: int
    """Estimated bytes for the whole table, scaled up from the sample."""
    build_s: float
    """Seconds that it took to build for the sample, on one core."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Change that does not pay."""

    label: str
    why: str


@dataclass(kw_only=True)
class Advice:
    """Result of a run of `merlot advise`."""

    table: str
    num_segments: int
    sample_segments: int
    sample_docs: int
    questions: list[Answered] = field(default_factory=list)
    chosen: list[Advised] = field(default_factory=list)
    saves: float = 0.0
    """Share of the total time that all changes save together: measured, or estimated if the run was interrupted."""
    rejected: list[Rejected] = field(default_factory=list)
    before: IndexingSpec
    after: IndexingSpec
    is_interrupted: bool = False

    @property
    def indexing_yaml(self) -> str:
        """YAML of the fields of `spec.indexing` that change."""
        return indexing_yaml(self.before, self.after)

    def edited(self, text: str) -> str:
        """Return the text of a manifest with the changes."""
        try:
            return edited(text, self.table, self.after)
        except InvalidInputError as error:
            raise CommandError(f"{error}: write the change yourself", self.indexing_yaml.splitlines()) from error

    def diff(self, before: str, after: str, name: str) -> Iterator[str]:
        """Return the lines of a diff between two texts of a manifest."""
        return difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)

    def to_json(self) -> dict[str, Any]:
        """Return the advice as JSON, for programs."""
        return {
            "table": self.table,
            "sample": {"segments": self.sample_segments, "of": self.num_segments, "rows": self.sample_docs},
            "saves": round(self.saves, 4),
            "changes": [
                {
                    "change": change.label,
                    "saves": round(change.gain, 4),
                    "queries": [number + 1 for number in change.helps],
                    "bytes": change.num_bytes,
                    "buildSeconds": round(change.build_s, 3),
                }
                for change in self.chosen
            ],
            "queries": [
                {"sql": query.sql, "count": round(query.count), "nowMs": query.before_ms, "thenMs": query.after_ms}
                for query in self.questions
            ],
            "rejected": [{"change": change.label, "why": change.why} for change in self.rejected],
            "indexing": self.after.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        }


def advise(order: AdviceRequest) -> Advice:
    """Measure the candidates on a sample, and choose those that pay."""
    table = read_table(order.client, order.table)
    if table.spec.upsert is not None:
        order.warn("rows that were replaced are measured as if they counted: the table is one of upserts")
    questions = _questions(order, table)
    with tempfile.TemporaryDirectory(prefix="merlot-advise-") as name:
        folder = Path(name)
        num_segments, paths = _sample(order, table, folder)
        segments = [ImmutableSegment.open(path, verify=bool(order.files)) for path in paths]
        return _AdviceRun(order, table, questions, num_segments, segments, folder).run()


# The queries


def _questions(order: AdviceRequest, table: Table) -> tuple[Question, ...]:
    log = brokers_log(order, table) if order.queries is None else _written_down(order.queries)
    now_ms, nulls = round(time.time() * 1000), table.spec.null_handling
    log_queries = workload(log, table.raw_name, table.spec.table_schema, now_ms, null_handling=nulls)
    for query in log_queries.unread:
        order.warn(f"left out, since {query.why}: {query.normal[:200]}")
    if not log_queries.questions:
        where = "brokers were asked lately" if order.queries is None else f"is in {order.queries}"
        raise CommandError(f"nothing to advise on: no query of {table.raw_name} {where}; see --queries")
    if len(log_queries.questions) > MOST_QUESTIONS:
        chosen = "the first of the file" if order.queries is not None else "those that took longest in all"
        order.warn(f"only {MOST_QUESTIONS} queries are tried, of {len(log_queries.questions)}: {chosen}")
    return log_queries.questions[:MOST_QUESTIONS]


def _written_down(path: Path) -> list[NormalizedQuery]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    statements, rest = split(text)
    texts = [*statements, *([] if is_blank(rest) else [rest])]
    return [NormalizedQuery(normal=normal_form(statement), texts=(statement.strip(),)) for statement in texts]


def brokers_log(order: AdviceRequest, table: Table) -> list[NormalizedQuery]:
    """Return the merged query logs of all brokers, the longest total time first."""
    merged: dict[tuple[str, str], NormalizedQuery] = {}
    for url in order.brokers or _broker_urls(order.client):
        try:
            answer = NodeClient(url).get(path_of("debug", "queryLog", table.raw_name))
        except CommandError as error:
            order.warn(f"a broker's log is missing: {error}")
            continue
        for entry in answer["queries"]:
            query = _logged(entry)
            key = query.normal, str(entry["options"])
            merged[key] = query if key not in merged else _together(merged[key], query)
    return sorted(merged.values(), key=lambda query: -query.time_ms)


def _broker_urls(client: NodeClient) -> list[str]:
    brokers = [instance for instance in client.get("/instances")["details"] if instance["role"] == "BROKER"]
    return [http_url(broker["hostName"], broker["port"], tls=bool(broker.get("tls"))) for broker in brokers] or [
        client.url
    ]


def _logged(entry: Mapping[str, Any]) -> NormalizedQuery:
    return NormalizedQuery(
        normal=entry["query"],
        texts=tuple(entry["samples"]),
        options=parse_options(entry["options"]),
        count=max(1, entry["count"]),
        time_ms=entry["timeMs"],
        num_segments=entry["numSegmentsProcessed"],
    )


def _together(first: NormalizedQuery, second: NormalizedQuery) -> NormalizedQuery:
    return replace(
        first,
        texts=tuple(dict.fromkeys((*first.texts, *second.texts)))[: max(len(first.texts), len(second.texts))],
        count=first.count + second.count,
        time_ms=first.time_ms + second.time_ms,
        num_segments=first.num_segments + second.num_segments,
    )


# The sample


def _sample(order: AdviceRequest, table: Table, folder: Path) -> tuple[int, list[Path]]:
    """Return the number of segments of the table, and the files of some of them."""
    statuses: Mapping[str, Any] = order.client.get(path_of("segments", table.raw_name, "metadata"))
    visible = [SegmentRecord.model_validate(status) for status in statuses.values() if status.get("visible", True)]
    if order.files:
        return max(len(visible), len(order.files)), list(order.files)
    chosen = newest([record for record in visible if record.total_docs], order.max_segments, order.max_rows)
    if not chosen:
        raise CommandError(f"nothing to advise on: {table.raw_name} has no sealed segment")
    declared = table.spec.deep_store_uri
    store = DeepStore(order.deep_store or declared or chosen[0].url.rsplit("/", 2)[0], keeps_copies=False)
    num_bytes = sum(record.size_bytes for record in chosen)
    check_room(folder, 3 * num_bytes)
    order.say(f"fetching {plural(len(chosen), 'segment')}, {size(num_bytes)}")
    return len(visible), fetch_segments(store, chosen, folder / "segments")


def newest(records: Sequence[SegmentRecord], max_segments: int, max_rows: int) -> list[SegmentRecord]:
    """Return the newest segments whose rows fit into `max_rows`, but at least one."""
    chosen: list[SegmentRecord] = []
    for record in sorted(records, key=lambda record: (-(record.end_time_ms or -1), record.name)):
        num_rows = sum(earlier.total_docs for earlier in chosen)
        if len(chosen) < max_segments and (not chosen or num_rows + record.total_docs <= max_rows):
            chosen.append(record)
    return chosen


# The trials


class _AdviceRun:
    """Trials of one run, from the sample to the advice."""

    def __init__(
        self,
        order: AdviceRequest,
        table: Table,
        questions: Sequence[Question],
        num_segments: int,
        segments: Sequence[ImmutableSegment],
        folder: Path,
    ) -> None:
        self._order = order
        self._table = table
        self._num_segments = num_segments
        self._segments = segments
        self._folder = folder
        self._questions = self._answered(questions)
        self._rejected: list[Rejected] = []

    def run(self) -> Advice:
        """Measure each candidate, choose, and measure the chosen changes together."""
        order, indexing = self._order, self._table.spec.indexing
        order.say("measuring the queries as they are")
        sample = sample_of(self._table, self._segments, self._folder)
        trial = Trial(sample, self._questions, self._folder)
        base = trial.as_it_is()
        columns = statistics([segment.metadata for segment in sample.segments])
        possible = [
            candidate for candidate in candidates(self._questions, columns, indexing) if self._is_allowed(candidate)
        ]
        tried, is_interrupted = self._tried(trial, possible[:MOST_CANDIDATES])
        scale = self._num_segments / len(self._segments)
        limit = None if order.max_bytes is None else int(order.max_bytes / scale)
        chosen = choose(base, tried, limit)
        after = base.times_ms
        if chosen:
            after = tuple(map(min, zip(*(choice.tried.times_ms for choice in chosen), strict=True)))
        if len(chosen) > 1 and not is_interrupted:
            try:
                order.say("measuring all changes together")
                after = trial.together([choice.tried.candidate for choice in chosen]).times_ms
            except KeyboardInterrupt:
                is_interrupted = True
        advice = Advice(
            table=self._table.raw_name,
            num_segments=self._num_segments,
            sample_segments=len(self._segments),
            sample_docs=sample.num_docs,
            questions=self._shown(base, after),
            chosen=[_advised(choice, scale) for choice in chosen],
            saves=base.saved_by(after),
            rejected=self._rejected + _rejected(base, tried, chosen, limit),
            before=indexing,
            after=indexing,
            is_interrupted=is_interrupted,
        )
        for choice in chosen:
            advice.after = choice.tried.candidate.applied(advice.after)
        return advice

    def _answered(self, questions: Sequence[Question]) -> list[Question]:
        """Return the queries that the sample can answer."""
        answerable = []
        for question in questions:
            why = answers(self._table, self._segments, question)
            if why is None:
                answerable.append(question)
            else:
                self._order.warn(f"left out, since it fails on the sample ({why}): {question.sql[:200]}")
        if not answerable:
            raise CommandError("nothing to advise on: every query fails on the sample")
        return answerable

    def _is_allowed(self, candidate: Candidate) -> bool:
        """Return True if the table's manifest with this change would be accepted."""
        spec = self._table.spec.model_copy(update={"indexing": candidate.applied(self._table.spec.indexing)})
        try:
            manifest.load_document(manifest.dump(self._table.model_copy(update={"spec": spec})))
        except manifest.ManifestError as error:
            self._rejected.append(Rejected(candidate.label, f"would be refused: {error.problems[0].message}"))
            return False
        return True

    def _tried(self, trial: Trial, selected: Sequence[Candidate]) -> tuple[list[Tried], bool]:
        """Try each candidate by itself. Return the results so far, and True if the user interrupted."""
        tried: list[Tried] = []
        for number, candidate in enumerate(selected, 1):
            try:
                self._order.say(f"{number} of {len(selected)}: {candidate.label}")
                tried.append(trial.run(candidate))
            except MerlotError as error:
                self._rejected.append(Rejected(candidate.label, f"cannot be built: {error}"))
            except KeyboardInterrupt:
                self._order.warn(f"stopped: {plural(len(tried), 'change')} of {len(selected)} tried")
                return tried, True
        return tried, False

    def _shown(self, base: Measured, after: Sequence[float]) -> list[Answered]:
        return [
            Answered(question.sql, question.count, round(before_ms, 4), round(after_ms, 4))
            for question, before_ms, after_ms in zip(self._questions, base.times_ms, after, strict=True)
        ]


def _advised(choice: Choice, scale: float) -> Advised:
    tried = choice.tried
    return Advised(tried.candidate.label, choice.gain, choice.helps, int(tried.num_bytes * scale), tried.build_s)


def _rejected(base: Measured, tried: Sequence[Tried], chosen: Sequence[Choice], limit: int | None) -> list[Rejected]:
    taken = {id(choice.tried) for choice in chosen}
    return [Rejected(each.candidate.label, _why(base, each, limit)) for each in tried if id(each) not in taken]


def _why(base: Measured, tried: Tried, limit: int | None) -> str:
    """Return why a change is not advised; the first reason that a user would ask for."""
    if tried.left_out:
        return tried.left_out[0]
    if not helped(base.times_ms, tried.times_ms):
        return "no query is faster by it"
    saved = base.saved_by(tried.times_ms)
    if saved < MIN_GAIN:
        return f"saves {saved:.1%} of the time" if saved >= 0 else "makes other queries slower by more than it saves"
    if limit is not None and tried.num_bytes > limit:
        return f"takes {size(tried.num_bytes)} of the sample, more than --bytes leaves"
    return f"saves {saved:.0%} alone, and little beside the others"
