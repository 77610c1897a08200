"""Time zones by the names that Pinot accepts: IANA's, offsets (`+05:30`, `GMT+8`, `Z`), and Java's short names.

For an offset, a zone is made from the TZif file (RFC 8536) that it would have, so that it is read like any other
zone.
"""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from io import BytesIO
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>[0-5]\d))?", re.ASCII)
_MAX_SECONDS: Final = 18 * 3_600
"""Longest offset, as in Java."""
_FIRST_NAMED_YEAR: Final = 1970
_LAST_NAMED_YEAR: Final = 2037
_SHORT: Final = {
    "Z": "UTC",
    "UT": "UTC",
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "ART": "Africa/Cairo",
    "AGT": "America/Argentina/Buenos_Aires",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IST": "Asia/Kolkata",
    "IET": "America/Indiana/Indianapolis",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""java.time.ZoneId.SHORT_IDS, except those that the time zone database has; also Z and UT."""


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """Return the zone of a name. Raise ZoneInfoNotFoundError, ValueError or OSError for an unknown name."""
    content = fixed_zone(name)
    if content is not None:
        return ZoneInfo.from_file(BytesIO(content), key=name)
    return ZoneInfo(_SHORT.get(name, name))


def fixed_zone(name: str) -> bytes | None:
    """Return the TZif content of a zone with a single offset; None if the name is no offset."""
    match = _OFFSET.fullmatch(name)
    if match is None:
        return None
    seconds = int(match["hours"]) * 3_600 + int(match["minutes"] or 0) * 60
    if seconds > _MAX_SECONDS:
        raise ZoneInfoNotFoundError(f"no time zone is so far from UTC name={name}")
    offset = -seconds if match["sign"] == "-" else seconds
    return struct.pack(">4s16x6l", b"TZif", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", offset, 0, 0) + b"UTC\0"


def zone_id(zone: tzinfo | None) -> str:
    """Return the id of a zone as Joda-Time writes it: `+08:00` for a zone with a single offset, otherwise the name."""
    name = str(zone or "UTC")
    match = _OFFSET.fullmatch(name)
    if match is None:
        return name
    hours, minutes = int(match["hours"]), int(match["minutes"] or 0)
    return f"{match['sign']}{hours:02}:{minutes:02}" if hours or minutes else "UTC"


@lru_cache(maxsize=256)
def short_names(zone: ZoneInfo) -> tuple[str, str] | None:
    """Return the names of a zone's standard time and summer time, such as PST and PDT; the same name twice if it has
    only one. None if the time zone database knows only offsets for the zone; an offset is its own name."""
    if _OFFSET.fullmatch(zone.key):
        return zone_id(zone), zone_id(zone)
    names: dict[bool, str] = {}
    moment = datetime(_LAST_NAMED_YEAR, 12, 31, tzinfo=UTC)
    while len(names) < 2 and moment.year >= _FIRST_NAMED_YEAR:
        shown = moment.astimezone(zone)
        names.setdefault(bool(shown.dst()), shown.tzname() or "")
        moment -= timedelta(days=28)
    if not all(name.isalpha() for name in names.values()):
        return None
    return names.get(False, names.get(True, "")), names.get(True, names.get(False, ""))
