"""Pin the settings of a table that decide the rows and the file of a stream's segment. The segment's record keeps them
from its beginning.

All replicas read them from the record, whatever revision of the table they know, so that they all have the same rows.
Settings that are not pinned, such as when a segment ends and how to connect, are the table's present ones.
"""

from __future__ import annotations

import functools
import hashlib
import json

from merlot.cluster.consuming.recovery import fields_of, read
from merlot.errors import CorruptionError
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import TableSchema
from merlot.spec.stream import StreamIngestion
from merlot.spec.table import TableSpec
from merlot.spec.upserting import UpsertSpec
from merlot.values.stored_text import stored_object

_WHAT = "pinned settings"
NOT_PINNED = {"flush", "properties", "secret_ref", "on_offset_out_of_range"}
"""Fields of the stream that are not pinned: none of them changes which rows the messages make."""


def pin(spec: TableSpec, upsert: UpsertSpec | None = None, recovery: int = 0) -> str:
    """Return the settings of a table as text; equal settings make equal texts. The text is empty if the table has no
    stream.

    `upsert`: settings of an upsert table, from the table or its UpsertConfig. `recovery`: number of a recovery, as in
    module `recovery`."""
    stream = spec.ingestion.stream
    if stream is None:
        return ""
    fields = {
        "schema": _fields(spec.table_schema),
        "timeColumn": spec.time_column,
        "indexing": _fields(spec.indexing),
        "partitioning": None if spec.partitioning is None else _fields(spec.partitioning),
        "stream": stream.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=NOT_PINNED),
    }
    if upsert is not None:
        effective = upsert if spec.retention is None else upsert.under_retention()
        fields["upsert"] = fields_of(effective, recovery)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def pinned_upsert(text: str) -> str:
    """Return the part of pinned settings that decides which rows are valid. The text is empty if there is none, or if
    the settings cannot be read; `unpin` raises for the latter."""
    try:
        upsert = stored_object(text, _WHAT)["upsert"]
    except (CorruptionError, KeyError):
        return ""
    return json.dumps(upsert, sort_keys=True, separators=(",", ":"))


def unpin_upsert(text: str) -> UpsertSpec:
    """Parse a text of `pinned_upsert`. Raise CorruptionError if it cannot be read."""
    return read(text)[0]


@functools.lru_cache(maxsize=256)
def decides_by_age(text: str) -> bool:
    """Return True if a time to live decides rows under these settings, or may do so: settings of a later version cannot
    be read."""
    try:
        spec = unpin_upsert(text)
    except CorruptionError:
        return True
    return spec.primary_key_ttl is not None or spec.deleted_keys_ttl is not None


def upsert_id(text: str) -> str:
    """Return a short id of a text of `pinned_upsert`, by which servers report the settings that they use. An empty text
    has an empty id."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest() if text else ""


def unpin(text: str, spec: TableSpec) -> TableSpec:
    """Return the table with pinned settings in place of its own. Raise CorruptionError if the text cannot be read."""
    current = spec.ingestion.stream
    assert current is not None
    fields = stored_object(text, _WHAT)
    try:
        unpinned = {name: getattr(current, name) for name in NOT_PINNED}
        stream = StreamIngestion.model_validate(fields["stream"]).model_copy(update=unpinned)
        partitioning = fields["partitioning"]
        update = {
            "table_schema": TableSchema.model_validate(fields["schema"]),
            "time_column": fields["timeColumn"],
            "indexing": IndexingSpec.model_validate(fields["indexing"]),
            "partitioning": None if partitioning is None else PartitioningSpec.model_validate(partitioning),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{_WHAT} cannot be read cause={type(error).__name__}") from error
    ingestion = spec.ingestion.model_copy(update={"stream": stream})
    return spec.model_copy(update={**update, "ingestion": ingestion})


def _fields(model: TableSchema | IndexingSpec | PartitioningSpec) -> dict[str, object]:
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
