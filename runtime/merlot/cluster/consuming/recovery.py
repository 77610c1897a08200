"""From where on the index of a partition's keys was recovered of everything that is stored. Pure.

A backfill brings rows of keys that have expired: the index has to know them again. So the settings that are pinned
where a segment begins may number a recovery. What was stored before the first segment of the greatest number is decided
by that segment's settings, without any time to live, and not by those that it came by; the same on every replica, and
after every restart.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Final

from merlot.cluster.records import StreamSegmentRecord
from merlot.spec.upserting import RETIRED, UpsertSpec

NOT_PINNED: Final = {"compaction"}
"""Of the settings: what decides no row."""
NUMBER: Final = "recovery"
"""Member of the pinned settings of upserts."""
_OF_EXPIRY: Final = (
    *("primary_key_ttl", "deleted_keys_ttl", "max_future_skew"),
    *("skip_late_events", "pruning", "pruning_interval"),
)


@functools.lru_cache(maxsize=1024)
def number_of(pinned_upsert: str) -> int:
    """Which recovery settings name; 0: none."""
    if not pinned_upsert:
        return 0
    try:
        return int(json.loads(pinned_upsert).get(NUMBER, 0))
    except (ValueError, TypeError, AttributeError):
        return 0  # whoever goes by the settings says what is wrong with them


def point_of(records: Mapping[int, StreamSegmentRecord]) -> int:
    """Sequence of the segment before which everything is decided anew; below all of them if there is none."""
    newest = max((number_of(record.upsert) for record in records.values()), default=0)
    if not newest:
        return -1
    return min(sequence for sequence, record in records.items() if number_of(record.upsert) == newest)


def decided_by(records: Mapping[int, StreamSegmentRecord], sequence: int, point: int) -> str:
    """The settings that decide the docs of a segment; `point` is that of the records."""
    return records[sequence].upsert if sequence >= point else _for_ever(records[point].upsert)


def without_expiry(spec: UpsertSpec) -> UpsertSpec:
    """The same, with keys that are remembered for ever."""
    return spec.model_copy(update={name: UpsertSpec.model_fields[name].default for name in _OF_EXPIRY})


@functools.lru_cache(maxsize=64)
def _for_ever(pinned_upsert: str) -> str:
    fields = json.loads(pinned_upsert)
    number = fields.pop(NUMBER)
    spec = without_expiry(read(fields))
    return text_of(spec, number)


def read(fields: Mapping[str, object]) -> UpsertSpec:
    """Read the members of pinned settings, perhaps of an earlier version."""
    return UpsertSpec.model_validate({name: value for name, value in fields.items() if name not in RETIRED})


def text_of(spec: UpsertSpec, number: int) -> str:
    """Settings as they are pinned."""
    return json.dumps(fields_of(spec, number), sort_keys=True, separators=(",", ":"))


def fields_of(spec: UpsertSpec, number: int) -> dict[str, object]:
    """The members of settings as they are pinned."""
    decides = set(UpsertSpec.model_fields) - NOT_PINNED
    fields = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=decides)
    return {**fields, NUMBER: number} if number else fields
