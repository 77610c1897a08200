"""What of a table's settings decides the rows and the file of a stream's segment: written down where it begins.

All replicas read it from the record, whatever revision of the table they know, so that they come to the same rows. What
is not here, such as when a segment ends and how to connect, is the table's as it is.
"""

from __future__ import annotations

import functools
import hashlib
import json

from pydantic import ValidationError

from merlot.cluster.consuming.recovery import NUMBER, fields_of, read
from merlot.errors import CorruptionError
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import TableSchema
from merlot.spec.stream import StreamIngestion
from merlot.spec.table import TableSpec
from merlot.spec.upserting import UpsertSpec

NOT_PINNED = {"flush", "properties", "secret_ref", "on_offset_out_of_range"}
"""Of the stream: none of them makes other rows of the same messages."""


def pin(spec: TableSpec, upsert: UpsertSpec | None = None, recovery: int = 0) -> str:
    """The text of a table's settings; equal settings make equal texts. Empty if it has no stream.

    upsert: of an upsert table, whoever says it, the table or its UpsertConfig. recovery: see `recovery`."""
    declared = spec.ingestion.stream
    if declared is None:
        return ""
    fields = {
        "schema": _fields(spec.table_schema),
        "timeColumn": spec.time_column,
        "indexing": _fields(spec.indexing),
        "partitioning": None if spec.partitioning is None else _fields(spec.partitioning),
        "stream": declared.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=NOT_PINNED),
    }
    if upsert is not None:
        under = upsert if spec.retention is None else upsert.under_retention()
        fields["upsert"] = fields_of(under, recovery)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def pinned_upsert(text: str) -> str:
    """The part of pinned settings that decides which rows are valid; empty if there is none. Text that cannot be read
    has none: `unpin` says what is wrong with it."""
    try:
        found = json.loads(text)["upsert"]
    except (ValueError, KeyError, TypeError):
        return ""
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def unpin_upsert(text: str) -> UpsertSpec:
    """What `pinned_upsert` gave. CorruptionError if it cannot be read."""
    try:
        fields = json.loads(text)
        fields.pop(NUMBER, None)
        return read(fields)
    except (ValueError, AttributeError, ValidationError) as error:
        raise CorruptionError("pinned settings of upserts cannot be read") from error


@functools.lru_cache(maxsize=256)
def decides_by_age(text: str) -> bool:
    """Whether rows are decided by a time to live under these settings, or may be: those of a later version."""
    try:
        spec = unpin_upsert(text)
    except CorruptionError:
        return True
    return spec.primary_key_ttl is not None or spec.deleted_keys_ttl is not None


def upsert_id(text: str) -> str:
    """Short for what `pinned_upsert` gave: servers tell by which settings they go; empty for none."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest() if text else ""


def unpin(text: str, spec: TableSpec) -> TableSpec:
    """The table with these settings in place of its own. CorruptionError if the text cannot be read."""
    declared = spec.ingestion.stream
    assert declared is not None
    try:
        fields = json.loads(text)
        own = {name: getattr(declared, name) for name in NOT_PINNED}
        stream = StreamIngestion.model_validate(fields["stream"]).model_copy(update=own)
        partitioning = fields["partitioning"]
        update = {
            "table_schema": TableSchema.model_validate(fields["schema"]),
            "time_column": fields["timeColumn"],
            "indexing": IndexingSpec.model_validate(fields["indexing"]),
            "partitioning": None if partitioning is None else PartitioningSpec.model_validate(partitioning),
        }
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise CorruptionError(f"pinned settings cannot be read cause={type(error).__name__}") from error
    ingestion = spec.ingestion.model_copy(update={"stream": stream})
    return spec.model_copy(update={**update, "ingestion": ingestion})


def _fields(model: TableSchema | IndexingSpec | PartitioningSpec) -> dict[str, object]:
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
