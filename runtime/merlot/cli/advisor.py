"""The work of `merlot advise`: the log, the sample, the trials, and what comes of them. Loads the engine."""

from __future__ import annotations

import difflib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from merlot.advice.candidates import Candidate, candidates
from merlot.advice.change import edited, indexing_yaml
from merlot.advice.choice import MIN_GAIN, Choice, Measured, Tried, choose, helped
from merlot.advice.statistics import statistics
from merlot.advice.trial import Trial, answers, sample_of
from merlot.advice.workload import LoggedQuery, Question, workload
from merlot.broker.planning.options import parse as parse_options
from merlot.catalog.transfer import check_room, fetch_segments
from merlot.cli.backfiller import read_table
from merlot.cli.client import Client, path_of
from merlot.cli.errors import CommandError, UsageError
from merlot.cli.output import plural, size
from merlot.cli.statements import is_blank, split
from merlot.cluster.records import SegmentRecord
from merlot.errors import InvalidInputError, MerlotError
from merlot.segment.immutable import ImmutableSegment
from merlot.spec import manifest
from merlot.spec.indexing import IndexingSpec
from merlot.spec.table import Table
from merlot.sql.normalised import normalised
from merlot.store.deepstore import DeepStore

MOST_QUESTIONS: Final = 60
"""Those that took longest in all."""
MOST_CANDIDATES: Final = 24
"""Those that promise most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to advise on, by what."""

    client: Client
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
    """A query on the sample, as it is and with all that is advised."""

    sql: str
    count: float
    before_ms: float
    after_ms: float


@dataclass(frozen=True, slots=True)
class Advised:
    """One change that pays."""

    label: str
    gain: float
    """The share of all time that it saves, beside those before it."""
    helps: tuple[int, ...]
    num_bytes: int
    """For the whole table, by the sample's."""
    build_s: float
    """For the sample, on one core."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """One that does not."""

    label: str
    why: str


@dataclass(kw_only=True)
class Advice:
    """What came of it."""

    table: str
    num_segments: int
    sample_segments: int
    sample_docs: int
    questions: list[Answered] = field(default_factory=list)
    chosen: list[Advised] = field(default_factory=list)
    saves: float = 0.0
    """The share of all time that they save together, as measured."""
    rejected: list[Rejected] = field(default_factory=list)
    before: IndexingSpec
    after: IndexingSpec
    is_interrupted: bool = False

    @property
    def indexing_yaml(self) -> str:
        """The fields of `spec.indexing` that change."""
        return indexing_yaml(self.before, self.after)

    def edited(self, text: str) -> str:
        """A manifest's text with the change."""
        try:
            return edited(text, self.table, self.after)
        except InvalidInputError as error:
            raise CommandError(f"{error}: write the change yourself", self.indexing_yaml.splitlines()) from error

    def diff(self, before: str, after: str, name: str) -> Iterator[str]:
        """Between two texts of a manifest, as lines."""
        return difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "table": self.table,
            "sample": {"segments": self.sample_segments, "of": self.num_segments, "rows": self.sample_docs},
            "saves": round(self.saves, 4),
            "changes": [
                {
                    "change": one.label,
                    "saves": round(one.gain, 4),
                    "queries": [number + 1 for number in one.helps],
                    "bytes": one.num_bytes,
                    "buildSeconds": round(one.build_s, 3),
                }
                for one in self.chosen
            ],
            "queries": [
                {"sql": one.sql, "count": round(one.count), "nowMs": one.before_ms, "thenMs": one.after_ms}
                for one in self.questions
            ],
            "rejected": [{"change": one.label, "why": one.why} for one in self.rejected],
            "indexing": self.after.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        }


def advise(order: Order) -> Advice:
    """Measure what might help, and choose."""
    table = read_table(order.client, order.table)
    if table.spec.upsert is not None:
        order.warn("rows that were replaced are measured as if they counted: the table is one of upserts")
    questions = _questions(order, table)
    with tempfile.TemporaryDirectory(prefix="merlot-advise-") as name:
        folder = Path(name)
        num_segments, paths = _sample(order, table, folder)
        segments = [ImmutableSegment.open(path, verify=bool(order.files)) for path in paths]
        return _Work(order, table, questions, num_segments, segments, folder).run()


# What is asked


def _questions(order: Order, table: Table) -> tuple[Question, ...]:
    log = brokers_log(order, table) if order.queries is None else _written_down(order.queries)
    now_ms, nulls = round(time.time() * 1000), table.spec.null_handling
    found = workload(log, table.raw_name, table.spec.table_schema, now_ms, null_handling=nulls)
    for one in found.unread:
        order.warn(f"left out, since {one.why}: {one.normal[:200]}")
    if not found.questions:
        where = "brokers were asked lately" if order.queries is None else f"is in {order.queries}"
        raise CommandError(f"nothing to advise on: no query of {table.raw_name} {where}; see --queries")
    if len(found.questions) > MOST_QUESTIONS:
        order.warn(f"only the {MOST_QUESTIONS} queries that took longest are tried, of {len(found.questions)}")
    return found.questions[:MOST_QUESTIONS]


def _written_down(path: Path) -> list[LoggedQuery]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    statements, rest = split(text)
    texts = [*statements, *([] if is_blank(rest) else [rest])]
    return [LoggedQuery(normal=normalised(one), texts=(one.strip(),)) for one in texts]


def brokers_log(order: Order, table: Table) -> list[LoggedQuery]:
    """Of all brokers, one entry for what several were asked."""
    merged: dict[tuple[str, str], LoggedQuery] = {}
    for url in order.brokers or _broker_urls(order.client):
        try:
            told = Client(url).get(path_of("debug", "queryLog", table.raw_name))
        except CommandError as error:
            order.warn(f"a broker's log is missing: {error}")
            continue
        for entry in told["queries"]:
            one = _logged(entry)
            key = one.normal, str(entry["options"])
            merged[key] = one if key not in merged else _together(merged[key], one)
    return sorted(merged.values(), key=lambda one: -one.time_ms)


def _broker_urls(client: Client) -> list[str]:
    found = [one for one in client.get("/instances")["details"] if one["role"] == "BROKER"]
    return [f"http://{one['hostName']}:{one['port']}" for one in found] or [client.url]


def _logged(entry: Mapping[str, Any]) -> LoggedQuery:
    return LoggedQuery(
        normal=entry["query"],
        texts=tuple(entry["samples"]),
        options=parse_options(entry["options"]),
        count=max(1, entry["count"]),
        time_ms=entry["timeMs"],
        num_segments=entry["numSegmentsProcessed"],
    )


def _together(one: LoggedQuery, other: LoggedQuery) -> LoggedQuery:
    return replace(
        one,
        texts=tuple(dict.fromkeys((*one.texts, *other.texts)))[: max(len(one.texts), len(other.texts))],
        count=one.count + other.count,
        time_ms=one.time_ms + other.time_ms,
        num_segments=one.num_segments + other.num_segments,
    )


# The sample


def _sample(order: Order, table: Table, folder: Path) -> tuple[int, list[Path]]:
    """How many segments the table has, and the files of some of them."""
    statuses: Mapping[str, Any] = order.client.get(path_of("segments", table.raw_name, "metadata"))
    visible = [SegmentRecord.model_validate(one) for one in statuses.values() if one.get("visible", True)]
    if order.files:
        return max(len(visible), len(order.files)), list(order.files)
    chosen = newest([one for one in visible if one.total_docs], order.max_segments, order.max_rows)
    if not chosen:
        raise CommandError(f"nothing to advise on: {table.raw_name} has no sealed segment")
    declared = table.spec.deep_store_uri
    store = DeepStore(order.deep_store or declared or chosen[0].url.rsplit("/", 2)[0], keeps_copies=False)
    num_bytes = sum(one.size_bytes for one in chosen)
    check_room(folder, 3 * num_bytes)
    order.say(f"fetching {plural(len(chosen), 'segment')}, {size(num_bytes)}")
    return len(visible), fetch_segments(store, chosen, folder / "segments")


def newest(records: Sequence[SegmentRecord], max_segments: int, max_rows: int) -> list[SegmentRecord]:
    """The newest ones, as long as there is room for their rows; one at least."""
    chosen: list[SegmentRecord] = []
    for record in sorted(records, key=lambda one: (-(one.end_time_ms or -1), one.name)):
        num_rows = sum(one.total_docs for one in chosen)
        if len(chosen) < max_segments and (not chosen or num_rows + record.total_docs <= max_rows):
            chosen.append(record)
    return chosen


# The trials


class _Work:
    """One run, from the sample to the advice."""

    def __init__(
        self,
        order: Order,
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
        """Measure, choose, and measure what was chosen together."""
        order, indexing = self._order, self._table.spec.indexing
        order.say("measuring the queries as they are")
        sample = sample_of(self._table, self._segments, self._folder)
        trial = Trial(sample, self._questions, self._folder)
        base = trial.as_it_is()
        known = statistics([segment.metadata for segment in sample.segments])
        found = [one for one in candidates(self._questions, known, indexing) if self._may_be(one)][:MOST_CANDIDATES]
        tried, is_interrupted = self._tried(trial, found)
        scale = self._num_segments / len(self._segments)
        limit = None if order.max_bytes is None else int(order.max_bytes / scale)
        chosen = choose(base, tried, limit)
        after = base.times_ms
        with suppress(KeyboardInterrupt):
            if len(chosen) > 1 and not is_interrupted:
                order.say("measuring all changes together")
                after = trial.together([one.tried.candidate for one in chosen]).times_ms
            elif chosen:
                after = tuple(min(one.tried.times_ms[number] for one in chosen) for number in range(len(after)))
        advice = Advice(
            table=self._table.raw_name,
            num_segments=self._num_segments,
            sample_segments=len(self._segments),
            sample_docs=sample.num_docs,
            questions=self._shown(base, after),
            chosen=[_advised(one, scale) for one in chosen],
            saves=base.saved_by(after),
            rejected=self._rejected + _rejected(base, tried, chosen, limit),
            before=indexing,
            after=indexing,
            is_interrupted=is_interrupted,
        )
        for one in chosen:
            advice.after = one.tried.candidate.applied(advice.after)
        return advice

    def _answered(self, questions: Sequence[Question]) -> list[Question]:
        """Those that the sample can answer."""
        kept = []
        for one in questions:
            why = answers(self._table, self._segments, one)
            if why is None:
                kept.append(one)
            else:
                self._order.warn(f"left out, since it fails on the sample ({why}): {one.sql[:200]}")
        if not kept:
            raise CommandError("nothing to advise on: every query fails on the sample")
        return kept

    def _may_be(self, candidate: Candidate) -> bool:
        """Whether the manifest would be accepted."""
        spec = self._table.spec.model_copy(update={"indexing": candidate.applied(self._table.spec.indexing)})
        try:
            manifest.load_document(manifest.dump(self._table.model_copy(update={"spec": spec})))
        except manifest.ManifestError as error:
            self._rejected.append(Rejected(candidate.label, f"would be refused: {error.problems[0].message}"))
            return False
        return True

    def _tried(self, trial: Trial, found: Sequence[Candidate]) -> tuple[list[Tried], bool]:
        """Each by itself; what was tried when somebody interrupts, and whether."""
        tried: list[Tried] = []
        for number, candidate in enumerate(found, 1):
            self._order.say(f"{number} of {len(found)}: {candidate.label}")
            try:
                one = trial.run(candidate)
            except MerlotError as error:
                self._rejected.append(Rejected(candidate.label, f"cannot be built: {error}"))
                continue
            except KeyboardInterrupt:
                self._order.warn(f"stopped: {plural(len(tried), 'change')} of {len(found)} tried")
                return tried, True
            tried.append(one)
        return tried, False

    def _shown(self, base: Measured, after: Sequence[float]) -> list[Answered]:
        return [
            Answered(one.sql, one.count, round(before_ms, 4), round(after_ms, 4))
            for one, before_ms, after_ms in zip(self._questions, base.times_ms, after, strict=True)
        ]


def _advised(one: Choice, scale: float) -> Advised:
    tried = one.tried
    return Advised(tried.candidate.label, one.gain, one.helps, int(tried.num_bytes * scale), tried.build_s)


def _rejected(base: Measured, tried: Sequence[Tried], chosen: Sequence[Choice], limit: int | None) -> list[Rejected]:
    taken = {id(one.tried) for one in chosen}
    return [Rejected(one.candidate.label, _why(base, one, limit)) for one in tried if id(one) not in taken]


def _why(base: Measured, one: Tried, limit: int | None) -> str:
    """In the order in which a user would ask."""
    if one.left_out:
        return one.left_out[0]
    if not helped(base.times_ms, one.times_ms):
        return "no query is faster by it"
    saved = base.saved_by(one.times_ms)
    if saved < MIN_GAIN:
        return f"saves {saved:.1%} of the time" if saved >= 0 else "makes other queries slower by more than it saves"
    if limit is not None and one.num_bytes > limit:
        return f"takes {size(one.num_bytes)} of the sample, more than --bytes leaves"
    return f"saves {saved:.0%} alone, and little beside the others"
