"""Writes of Pinot's configs through Pinot's endpoints: they are converted into manifests and applied. Calls block; any
thread may call.

A write is one transaction, whatever it consists of: a table, its merges, its schema. A manifest describes the OFFLINE
and the REALTIME table of a name. A table config changes only what the manifest says about the table of its type;
settings that Pinot's configs cannot express stay as they are in the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot.clock import Clock
from merlot.cluster import homes
from merlot.cluster.manifests import schemas, tables
from merlot.cluster.together import PendingWrites
from merlot.errors import ConflictError, InvalidInputError, NotFoundError
from merlot.ids import RawTableName, raw_name
from merlot.metastore.protocol import Metastore
from merlot.pinot.configs import changes
from merlot.pinot.configs.documents import Converted, convert, convert_schema
from merlot.pinot.reads import PinotReads
from merlot.spec import manifest
from merlot.spec.manifest import ManifestError

Json = dict[str, Any]
Apply = Callable[[Metastore, str, bool], Sequence[str]]
"""Function of a metastore, manifests as YAML, and `dry_run`: checks them, applies them unless `dry_run`, returns
warnings."""

_ATTEMPTS = 5
_TABLE_TYPES = ("OFFLINE", "REALTIME")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinotWriteResult:
    """Result of a write: names as clients know them, and notes about settings that have no equivalent."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


class PinotWrites:
    """Writer of Pinot's configs to one cluster."""

    def __init__(self, metastore: Metastore, clock: Clock, apply: Apply, reading: PinotReads) -> None:
        self._metastore = metastore
        self._clock = clock
        self._apply = apply
        self._reading = reading

    def check_owner(self, what: str) -> None:
        """Raise ConflictError if an operator declares the cluster's objects, since it would undo what is written
        here."""
        namespace = homes.declaring_namespace(self._metastore)
        if namespace is not None:
            raise ConflictError(
                f"{what} is declared in Kubernetes namespace={namespace}: the operator would undo what is written here;"
                " change the manifest and run kubectl apply (merlot import makes one of Pinot's configs)"
            )

    def create_table(self, config: Mapping[str, Any], *, dry_run: bool = False) -> PinotWriteResult:
        """Create the table of the config's type; its schema must exist. Raise ConflictError if that table exists."""
        raw, table_type = _name_and_type(config)
        return self._write(raw, lambda: self._with_configs(raw, {table_type: config}, creates=True), dry_run=dry_run)

    def change_table(self, name: str, config: Mapping[str, Any]) -> PinotWriteResult:
        """Change the table of the config's type. Raise NotFoundError if it does not exist."""
        raw, table_type = _name_and_type(config)
        if raw_name(name) != raw:
            raise InvalidInputError(f"the config is of another table expected={name} got={raw}_{table_type}")
        return self._write(raw, lambda: self._with_configs(raw, {table_type: config}, creates=False))

    def set_suspended(self, name: str, *, is_suspended: bool) -> None:
        """Write `spec.suspend` into a table's manifest. Raise NotFoundError, or ConflictError if an operator declares
        it."""
        raw = raw_name(name)

        def decide() -> Converted:
            present = tables.get_table(self._metastore, raw).manifest
            return Converted(({**present, "spec": {**present["spec"], "suspend": is_suspended}},), ())

        self._write(raw, decide)

    def write_configs(self, document: Mapping[str, Any], *, creates: bool, dry_run: bool = False) -> PinotWriteResult:
        """Write Pinot's TableConfigs at once: a schema, and the OFFLINE or the REALTIME table or both."""
        schema = document.get("schema")
        configs = [
            document[table_type.lower()]
            for table_type in _TABLE_TYPES
            if isinstance(document.get(table_type.lower()), dict)
        ]
        if not isinstance(schema, dict) or not configs:
            raise InvalidInputError("TableConfigs hold tableName, schema, and offline or realtime or both")
        named = [_name_and_type(config) for config in configs]
        raw = named[0][0]
        if any(name != raw for name, _ in named) or document.get("tableName", raw) != raw:
            raise InvalidInputError(f"the configs are not of one table names={sorted({name for name, _ in named})}")
        by_type = {table_type: config for (_, table_type), config in zip(named, configs, strict=True)}
        decide = lambda: self._with_configs(raw, by_type, creates=creates, schema=schema)  # noqa: E731
        return self._write(raw, decide, schema=schema, dry_run=dry_run)

    def write_schema(
        self, document: Mapping[str, Any], name: str | None = None, *, is_new: bool = False
    ) -> PinotWriteResult:
        """Store a schema for the tables of its name, or change the columns of the existing one.

        `name`: name of the schema to change; raise NotFoundError if it does not exist. `is_new`: raise ConflictError if
        the schema exists."""
        raw = self._check_schema(document)
        if name is not None and name != raw:
            raise InvalidInputError(f"the schema is another one expected={name} got={raw}")
        if name is not None or is_new:
            exists = self.find_schema(raw) is not None
            if exists and is_new:
                raise ConflictError(f"schema exists already name={raw}; override=true changes it")
            if not exists and not is_new:
                raise NotFoundError(f"schema does not exist name={raw}")
        return self._write(raw, lambda: self._with_schema(raw, document), schema=document)

    def check_schema(self, document: Mapping[str, Any]) -> Json:
        """Return the schema if a table could have it; else raise InvalidInputError."""
        self._check_schema(document)
        return dict(document)

    def find_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return a schema in Pinot's form: a table's, or one stored without a table; None if there is none."""
        if tables.find_table(self._metastore, name) is not None:
            return self._reading.schema(name)
        return schemas.find_schema(self._metastore, raw_name(name))

    def schema(self, name: str) -> Mapping[str, Any]:
        """Return a schema as `find_schema` does. Raise NotFoundError if there is none."""
        schema = self.find_schema(name)
        if schema is None:
            raise NotFoundError(f"schema does not exist name={name}")
        return schema

    def schema_names(self) -> list[str]:
        """Return the names of all schemas, sorted."""
        return sorted({*self._reading.table_names(), *schemas.schema_names(self._metastore)})

    def delete_schema(self, name: str) -> None:
        """Delete a schema that no table has. Raise ConflictError if a table has it."""
        if tables.find_table(self._metastore, name) is not None:
            names = ", ".join(self._reading.typed_names_of(name))
            raise ConflictError(f"cannot delete schema name={name}: it is that of tables: {names}")
        if schemas.find_schema(self._metastore, name) is None:
            raise NotFoundError(f"schema does not exist name={name}")
        schemas.delete_schema(self._metastore, name)

    def _check_schema(self, document: Mapping[str, Any]) -> RawTableName:
        """Return the schema's name. Raise InvalidInputError if no table could have the schema."""
        name = document.get("schemaName")
        if not isinstance(name, str) or not name:
            raise InvalidInputError("a schema has a schemaName")
        table_schema, _ = convert_schema(document)
        try:
            manifest.load(_text([changes.table_manifest(name, {"schema": table_schema})]))
        except ManifestError as error:
            problems = [
                problem for problem in error.problems if problem.path.startswith(("spec.schema.fields", "metadata"))
            ]
            if problems:
                raise ManifestError(tuple(problems)) from error
        return RawTableName(name)

    def _with_configs(
        self,
        raw: RawTableName,
        configs: Mapping[str, Mapping[str, Any]],
        *,
        creates: bool,
        schema: Mapping[str, Any] | None = None,
    ) -> Converted:
        """Return the manifest that has these table configs, by table type."""
        record = tables.find_table(self._metastore, raw)
        present: Mapping[str, Json] = {} if record is None else self._reading.configs_by_half(raw)
        existing = [table_type for table_type in configs if table_type in present]
        if creates and existing:
            raise ConflictError(f"table exists already table={raw}_{existing[0]}; PUT changes it")
        if not creates and not existing:
            raise NotFoundError(f"table does not exist table={raw}_{next(iter(configs))}")
        declared = schema or self.find_schema(raw)
        if declared is None:
            raise InvalidInputError(f"schema does not exist name={raw}: write it first, to /schemas")
        wanted = {**declared, "schemaName": raw}
        if record is None:
            return convert([wanted, *configs.values()])
        before = self._reading.schema(raw)
        # Compare each config with its own previous version, so that either may change a setting that both have.
        converted = Converted((record.manifest,), ())
        for table_type in existing:
            old, new = convert([before, present[table_type]]), convert([wanted, configs[table_type]])
            converted = changes.applied(converted, old, new)
        if len(existing) < len(configs):
            whole = {**present, **configs}
            converted = changes.applied(
                converted, convert([before, *present.values()]), convert([wanted, *whole.values()])
            )
        return converted

    def _with_schema(self, raw: RawTableName, document: Mapping[str, Any]) -> Converted:
        record = tables.find_table(self._metastore, raw)
        wanted, notes = convert_schema(document)
        if record is None:
            return Converted((), notes)
        before, _ = convert_schema(self._reading.schema(raw))
        manifests = [changes.table_manifest(raw, {"schema": schema}) for schema in (before, wanted)]
        now = Converted((record.manifest,), ())
        return changes.applied(now, Converted((manifests[0],), ()), Converted((manifests[1],), notes))

    def _write(
        self,
        raw: RawTableName,
        decide: Callable[[], Converted],
        *,
        schema: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> PinotWriteResult:
        """Write manifests and the schema at once. Call `decide` again if another process writes meanwhile."""
        if not dry_run:
            self.check_owner(f"table {raw}")
        for _ in range(_ATTEMPTS):
            converted = decide()
            pending = PendingWrites(self._metastore)
            notes = list(converted.notes)
            if converted.manifests:
                notes += self._apply(pending, _text(converted.manifests), dry_run)
            operation = None if schema is None else schemas.writing(self._metastore, raw, schema, self._clock.now_ms())
            if operation is not None:
                pending.add(operation)
            if dry_run or _is_committed(pending):
                return PinotWriteResult(names=(raw,), notes=tuple(notes))
        raise ConflictError(f"table is written by too many at once table={raw}")


def _is_committed(pending: PendingWrites) -> bool:
    try:
        pending.commit()
    except ConflictError:
        return False
    return True


def _name_and_type(config: Mapping[str, Any]) -> tuple[RawTableName, str]:
    """Return the raw name and the type of a table config."""
    name, table_type = config.get("tableName"), str(config.get("tableType", "")).upper()
    if not isinstance(name, str) or not name or table_type not in _TABLE_TYPES:
        raise InvalidInputError("a table config has a tableName, and a tableType: OFFLINE or REALTIME")
    return raw_name(name), table_type


def _text(manifests: Sequence[Mapping[str, Any]]) -> str:
    return "\n---\n".join(map(json.dumps, manifests))
