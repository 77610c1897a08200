"""Application of manifests of all kinds: checked together, and applied all or none. Blocks; any thread may call.

Objects may come in any order. An object that needs another that does not exist yet is accepted, and a warning says what
it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from merlot.clock import Clock
from merlot.cluster.instances import liveness
from merlot.cluster.manifests import rollups, row_rules, tables, upserts
from merlot.cluster.manifests.store import ApplyOutcome
from merlot.cluster.records import InstanceRecord, Role
from merlot.controller.allowed_places import AllowedPlaces
from merlot.entry_points import entry_points_named
from merlot.errors import InvalidInputError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore
from merlot.pinot.cluster_json import Json
from merlot.spec import manifest
from merlot.spec.manifest import Manifest, ManifestProblem, rollup_checks, upsert_checks
from merlot.spec.table import Table
from merlot.spec.tasks import MergeRollupTask
from merlot.spec.upsert import UpsertConfig
from merlot.spec.upserting import MERGER_GROUP, UpsertSpec


class ApplyError(InvalidInputError):
    """Raised if documents cannot be applied; none of them has been."""

    def __init__(self, problems: Sequence[ManifestProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedDocument:
    """Outcome of one document."""

    kind: str
    name: str
    result: str
    revision: int
    warnings: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return the document's part of the answer to `POST /apply`."""
        return {
            "kind": self.kind,
            "name": self.name,
            "result": self.result,
            "revision": self.revision,
            "warnings": list(self.warnings),
        }


Authorize = Callable[[str], None]
"""Raises AccessDeniedError if the caller may not manage a table."""


def apply_manifests(
    metastore: Metastore,
    text: str,
    clock: Clock,
    places: AllowedPlaces,
    *,
    dry_run: bool = False,
    authorize: Authorize = lambda _: None,
) -> list[AppliedDocument]:
    """Apply all documents or, if any is wrong, none. Raise ManifestError or ApplyError with all problems, and whatever
    `authorize` raises for a table that a document is about."""
    documents = manifest.load(text)
    for name in _managed(metastore, documents):
        authorize(name)
    outcomes = _check(metastore, documents, places)
    servers = liveness.live_instances(metastore, Role.SERVER)
    results: dict[int, AppliedDocument] = {}
    for number in sorted(range(len(documents)), key=lambda index: not isinstance(documents[index], Table)):
        document = documents[number]
        warnings = _warnings(metastore, document, documents, servers)
        outcome, revision = outcomes[number], _revision(metastore, document)
        if not dry_run:
            outcome, revision = _apply(metastore, document, clock)
        results[number] = AppliedDocument(
            kind=document.kind, name=document.metadata.name, result=outcome, revision=revision, warnings=warnings
        )
    return [results[number] for number in range(len(documents))]


def _managed(metastore: Metastore, documents: Sequence[Manifest]) -> list[str]:
    """Return the names whose managers may apply the documents: tables, those that merge tasks were about before, and
    upsert configs, which are managed by their own names."""
    names: list[str] = []
    for document in documents:
        if isinstance(document, MergeRollupTask):
            present = rollups.find_rollup(metastore, document.metadata.name)
            names += [document.spec.table, *([] if present is None else [present.table])]
        else:
            names.append(document.metadata.name)
    return names


def applier(clock: Clock, places: AllowedPlaces) -> Callable[[Metastore, str, bool], list[str]]:
    """Return a function of a metastore, manifests and `dry_run` that calls `apply_manifests` and returns the
    warnings."""

    def apply(metastore: Metastore, text: str, dry_run: bool) -> list[str]:
        applied = apply_manifests(metastore, text, clock, places, dry_run=dry_run)
        return [warning for document in applied for warning in document.warnings]

    return apply


def _check(metastore: Metastore, documents: Sequence[Manifest], places: AllowedPlaces) -> list[ApplyOutcome]:
    outcomes: list[ApplyOutcome] = []
    problems: list[ManifestProblem] = []
    for number, document in enumerate(documents, start=1):
        new_problems: Sequence[ManifestProblem] = ()
        try:
            outcomes.append(_outcome(metastore, document))
        except (tables.EvolutionError, rollups.RollupConflictError) as error:
            new_problems = error.problems
        if isinstance(document, Table):
            new_problems = [
                *new_problems,
                *places.problems_of(document),
                *_upsert_problems(metastore, document, documents),
            ]
        if isinstance(document, UpsertConfig):
            new_problems = [*new_problems, *_problems_of_tables(metastore, document, documents)]
        if isinstance(document, MergeRollupTask):
            new_problems = [*new_problems, *_rollup_problems(metastore, document, documents[: number - 1], documents)]
        if isinstance(document, Table):
            new_problems = [*new_problems, *_stream_problems(document)]
        position = number if len(documents) > 1 else None
        problems += [ManifestProblem(problem.path, problem.message, problem.line, position) for problem in new_problems]
    if problems:
        raise ApplyError(problems)
    return outcomes


def _stream_problems(table: Table) -> list[ManifestProblem]:
    """Return why a server could not make rows of the table's messages."""
    stream = table.spec.ingestion.stream
    if stream is None:
        return []
    decoder = stream.decoder
    if not (stream.filter or stream.derived_columns or decoder.avro_schema or decoder.descriptor_set):
        return []
    from merlot.ingest import stream_checks  # loads the engine, which a controller without such tables does not need

    return stream_checks.problems_of(table.spec)


def _outcome(metastore: Metastore, document: Manifest) -> ApplyOutcome:
    match document:
        case Table():
            return tables.check_table(metastore, document)
        case MergeRollupTask():
            return rollups.check_rollup(metastore, document)
        case UpsertConfig():
            return upserts.check_upsert(metastore, document)
        case _:
            assert_never(document)


def _apply(metastore: Metastore, document: Manifest, clock: Clock) -> tuple[ApplyOutcome, int]:
    match document:
        case Table():
            table = tables.apply_table(metastore, document, clock=clock)
            return table.outcome, table.record.revision
        case MergeRollupTask():
            rollup = rollups.apply_rollup(metastore, document, clock=clock)
            return rollup.outcome, rollup.record.revision
        case UpsertConfig():
            upsert = upserts.apply_upsert(metastore, document, clock=clock)
            return upsert.outcome, upsert.record.revision
        case _:
            assert_never(document)


def _revision(metastore: Metastore, document: Manifest) -> int:
    """Return the stored revision; 0 if the object is new."""
    match document:
        case Table():
            table = tables.find_table(metastore, document.name)
            return 0 if table is None else table.revision
        case MergeRollupTask():
            rollup = rollups.find_rollup(metastore, document.metadata.name)
            return 0 if rollup is None else rollup.revision
        case UpsertConfig():
            upsert = upserts.find_upsert(metastore, document.metadata.name)
            return 0 if upsert is None else upsert.revision
        case _:
            assert_never(document)


def _rollup_problems(
    metastore: Metastore, document: MergeRollupTask, before: Sequence[Manifest], documents: Sequence[Manifest]
) -> list[ManifestProblem]:
    """Return the conflicts of a MergeRollupTask with its table, and with another one for the same table in the same
    request."""
    problems = [
        ManifestProblem(
            "spec.table", f'table "{document.spec.table}" has the MergeRollupTask "{other.metadata.name}" as well'
        )
        for other in before
        if isinstance(other, MergeRollupTask) and other.spec.table == document.spec.table
    ]
    table = _table_of(metastore, document, documents)
    return problems if table is None else [*problems, *rollup_checks.against_table(document.spec, table.spec)]


def _upsert_problems(metastore: Metastore, table: Table, documents: Sequence[Manifest]) -> list[ManifestProblem]:
    """Return the conflicts of the table's upsert settings, or of the UpsertConfig that it names, with the table and its
    rows."""
    settings = _settings_of(metastore, table, documents)
    if settings is None:
        return []
    changed = row_rules.changed(metastore, table.name, table.spec, settings.spec, settings.path)
    return [*settings.problems_of(table), *changed]


def _settings_of(
    metastore: Metastore, table: Table, documents: Sequence[Manifest]
) -> upsert_checks.UpsertSettings | None:
    """Return the future upsert settings of a table: the request's UpsertConfig counts before a stored one."""
    requested = [document for document in documents if isinstance(document, UpsertConfig)]
    return upsert_checks.settings_of(table, [*requested, upserts.named_by(metastore, table.spec)])


def _problems_of_tables(
    metastore: Metastore, config: UpsertConfig, documents: Sequence[Manifest]
) -> list[ManifestProblem]:
    """Return the conflicts of an UpsertConfig with tables that name it and are not part of the request."""
    name, applied = config.metadata.name, {document.name for document in documents if isinstance(document, Table)}
    problems: list[ManifestProblem] = []
    for table_name, record in tables.list_tables(metastore).items():
        table = tables.spec_of(record)
        if table_name in applied or table.spec.upsert is None or table.spec.upsert.config_ref != name:
            continue
        conflicts = upsert_checks.against_named(config.spec, table)
        problems += [
            ManifestProblem(conflict.path, f'table "{table.raw_name}": {conflict.message}') for conflict in conflicts
        ]
    return [*problems, *row_rules.changed_by(metastore, config, applied)]


def _table_of(metastore: Metastore, document: MergeRollupTask, documents: Sequence[Manifest]) -> Table | None:
    """Return the table as it will be: from the request, else as stored; None if there is none."""
    for other in documents:
        if isinstance(other, Table) and other.metadata.name == document.spec.table:
            return other
    record = tables.find_table(metastore, document.spec.table)
    return None if record is None else tables.spec_of(record)


def _warnings(
    metastore: Metastore,
    document: Manifest,
    documents: Sequence[Manifest],
    servers: Mapping[InstanceId, InstanceRecord],
) -> tuple[str, ...]:
    match document:
        case Table():
            waiting = _waiting(metastore, document, documents)
            return (
                *_adoption(metastore, document),
                *_table_warnings(document, servers),
                *waiting,
                *_own_mergers(document),
            )
        case MergeRollupTask():
            if _table_of(metastore, document, documents) is None:
                return (f'spec.table: there is no table "{document.spec.table}" yet; waits for it',)
            return ()
        case UpsertConfig():
            return _merger_warnings(document.spec, "spec")
        case _:
            assert_never(document)


def _own_mergers(table: Table) -> tuple[str, ...]:
    declared = table.spec.upsert
    config = None if declared is None else declared.config
    return () if config is None else _merger_warnings(config, upsert_checks.INLINE)


def _merger_warnings(spec: UpsertSpec, path: str) -> tuple[str, ...]:
    """Return warnings about custom mergers that are not installed here. Servers may have other packages."""
    columns = spec.partial_upsert_strategies
    named = {f"{path}.partialUpsertStrategies.{column}": name for column, name in columns.items()}
    named[f"{path}.defaultPartialUpsertStrategy"] = spec.default_partial_upsert_strategy
    return tuple(
        f"{where}: no package here has {name} as an entry point of {MERGER_GROUP}; servers without it consume nothing"
        for where, name in named.items()
        if "." in name and not entry_points_named(MERGER_GROUP, name)
    )


def _waiting(metastore: Metastore, table: Table, documents: Sequence[Manifest]) -> tuple[str, ...]:
    declared = table.spec.upsert
    if declared is None or declared.config_ref is None or _settings_of(metastore, table, documents) is not None:
        return ()
    text = f'spec.upsert.configRef: there is no UpsertConfig "{declared.config_ref}" yet'
    return (f"{text}; nothing is consumed before it is there",)


def _adoption(metastore: Metastore, table: Table) -> tuple[str, ...]:
    retained = tables.find_retained(metastore, table.name)
    if retained is None:
        return ()
    return (f"it takes over {retained.num_segments} segments that an earlier table of this name left",)


def _table_warnings(table: Table, servers: Mapping[InstanceId, InstanceRecord]) -> tuple[str, ...]:
    tenant = table.spec.tenants.server.name
    num_servers = sum(record.tenant == tenant for record in servers.values())
    if num_servers < table.spec.replication:
        text = f"spec.replication: {table.spec.replication} replicas wanted, {num_servers} servers live"
        return (f"{text} in tenant {tenant!r}; each segment gets as many replicas as there are servers",)
    return ()
