"""Find the segment from which on a recovery has rebuilt the key index of a partition from all stored rows. Pure.

A backfill brings rows of keys that have expired: the index has to know these keys again. So the settings that a segment
pins may have the number of a recovery. Rows stored before the first segment of the greatest number are decided by that
segment's settings, without any time to live, instead of those that they were read by. This is the same on every
replica, and after every restart.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from merlot.cluster.records import StreamSegmentRecord
from merlot.errors import CorruptionError
from merlot.spec.upserting import RETIRED, UpsertSpec
from merlot.values.stored_text import stored_object

NOT_PINNED: Final = {"compaction"}
"""Settings of upserts that decide no rows."""
NUMBER: Final = "recovery"
"""Member of the pinned settings of upserts that numbers a recovery."""
_WHAT: Final = "pinned settings of upserts"
_OF_EXPIRY: Final = (
    *("primary_key_ttl", "deleted_keys_ttl", "max_future_skew"),
    *("skip_late_events", "pruning", "pruning_interval"),
)


@functools.lru_cache(maxsize=1024)
def number_of(pinned_upsert: str) -> int:
    """Return the number of the recovery in pinned settings; 0 if there is none."""
    if not pinned_upsert:
        return 0
    try:
        return _number_in(stored_object(pinned_upsert, _WHAT))
    except CorruptionError:
        return 0  # the users of unreadable settings report them


def point_of(records: Mapping[int, StreamSegmentRecord]) -> int:
    """Return the sequence of the segment before which everything is decided anew; -1 if there is no recovery."""
    newest = max((number_of(record.upsert) for record in records.values()), default=0)
    if not newest:
        return -1
    return min(sequence for sequence, record in records.items() if number_of(record.upsert) == newest)


def decided_by(records: Mapping[int, StreamSegmentRecord], sequence: int, point: int) -> str:
    """Return the settings that decide the docs of a segment; `point` is `point_of(records)`."""
    return records[sequence].upsert if sequence >= point else _for_ever(records[point].upsert)


def without_expiry(spec: UpsertSpec) -> UpsertSpec:
    """Return the settings without expiry: keys are remembered for ever."""
    return spec.model_copy(update={name: UpsertSpec.model_fields[name].default for name in _OF_EXPIRY})


@functools.lru_cache(maxsize=64)
def _for_ever(pinned_upsert: str) -> str:
    spec, number = read(pinned_upsert)
    return text_of(without_expiry(spec), number)


def read(pinned_upsert: str) -> tuple[UpsertSpec, int]:
    """Parse pinned settings, perhaps of an earlier version; return them and the number of the recovery, 0 if there is
    none. Raise CorruptionError if they cannot be read."""
    fields = stored_object(pinned_upsert, _WHAT)
    return settings_of({name: value for name, value in fields.items() if name != NUMBER}), _number_in(fields)


def settings_of(fields: Mapping[str, object]) -> UpsertSpec:
    """Parse the members of settings, perhaps of an earlier version; raise CorruptionError if they cannot be read."""
    try:
        return UpsertSpec.model_validate({name: value for name, value in fields.items() if name not in RETIRED})
    except ValidationError as error:
        raise CorruptionError(f"{_WHAT} cannot be read num_errors={error.error_count()}") from error


def _number_in(fields: Mapping[str, object]) -> int:
    number = fields.get(NUMBER, 0)
    if not isinstance(number, int):
        raise CorruptionError(f"{_WHAT} cannot be read, the number of the recovery is none got={number!r:.40}")
    return number


def text_of(spec: UpsertSpec, number: int) -> str:
    """Return settings as the text that is pinned."""
    return json.dumps(fields_of(spec, number), sort_keys=True, separators=(",", ":"))


def fields_of(spec: UpsertSpec, number: int) -> dict[str, object]:
    """Return the members of settings that are pinned."""
    decides = set(UpsertSpec.model_fields) - NOT_PINNED
    fields = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=decides)
    return {**fields, NUMBER: number} if number else fields
