"""Rows of ClickBench's schema, `hits` with its 105 columns: seeded, skewed, with empty strings and long URLs.

The real rows are 15 GB to fetch; these have their shape as the queries see it: few counters have most rows, most
phrases are empty, most flags are 0, users and addresses come back by a power law. Nothing is made for a query.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FIRST_DAY = dt.date(2013, 7, 1)
NUM_DAYS = 31
FIRST_MS = 1_372_636_800_000
DAY_MS = 86_400_000
SEARCHED = 0.13
"""Share of the rows with a phrase."""

Random = np.random.Generator
Longs = NDArray[np.int64]

_FLAGS = {
    "JavaEnable": 0.8, "GoodEvent": 1.0, "IsRefresh": 0.1, "CookieEnable": 0.95, "JavascriptEnable": 0.97,
    "IsMobile": 0.06, "IsArtifical": 0.01, "IsLink": 0.05, "IsDownload": 0.01, "IsNotBounce": 0.2,
    "IsOldCounter": 0.001, "IsEvent": 0.02,
    "IsParameter": 0.02, "DontCountHits": 0.1, "WithHash": 0.04, "HasGCLID": 0.02,
}  # fmt: skip
"""SMALLINT columns that are 0 or 1, and how often 1."""
_SMALL = {
    "CounterClass": 3, "OS": 90, "UserAgent": 80, "RefererCategoryID": 200, "URLCategoryID": 200, "ResolutionDepth": 33,
    "FlashMajor": 12, "FlashMinor": 10, "NetMajor": 5, "NetMinor": 4, "UserAgentMajor": 60, "MobilePhone": 90,
    "TraficSourceID": 9, "SearchEngineID": 40, "AdvEngineID": 60, "ClientTimeZone": 700, "SilverlightVersion1": 6,
    "SilverlightVersion2": 2, "SilverlightVersion4": 3, "Age": 60, "Sex": 3, "Income": 5, "Interests": 30_000,
    "Robotness": 3, "HistoryLength": 60, "SocialNetwork": 5, "HTTPError": 500, "SocialSourceNetworkID": 8,
    "ParamCurrencyID": 5,
}  # fmt: skip
"""SMALLINT columns and how many values they have, small ones most often."""
_RARE = frozenset({"AdvEngineID", "MobilePhone", "HTTPError", "SocialNetwork", "SocialSourceNetworkID", "Robotness"})
"""Columns that are 0 in all but few rows."""
_WORDS = (
    "google",
    "yandex",
    "news",
    "kino",
    "auto",
    "foto",
    "forum",
    "shop",
    "karta",
    "pogoda",
    "igry",
    "rabota",
    "dom",
)
_SUFFIXES = ("ru", "com", "net", "ua", "by", "kz", "org")


def columns(rows: int, seed: int) -> dict[str, Callable[[Random], Any]]:
    """A maker for each column, in the schema's order."""
    shape = _Shape(rows, seed)
    makers: dict[str, Callable[[Random], Any]] = {}
    for name, kind in SCHEMA:
        makers[name] = getattr(shape, f"_{name}", None) or shape.plain(name, kind)
    return makers


class _Shape:
    """What columns have in common: how many rows, and which of them search."""

    def __init__(self, rows: int, seed: int) -> None:
        random = np.random.default_rng([seed, 0])
        self._rows = rows
        self._num_users = max(16, rows // 6)
        self._users = _power(random, rows, self._num_users, 1.3)
        self._counters = _power(random, rows, 6_000, 2.5)
        self._times = np.sort(random.integers(0, NUM_DAYS * DAY_MS // 1000, rows)) * 1000 + FIRST_MS
        # A counter's rows lie together, as those of the real table do.
        order = np.lexsort([self._times, self._counters])
        self._users, self._counters, self._times = (one[order] for one in (self._users, self._counters, self._times))
        self._searches = random.random(rows) < SEARCHED
        num_urls = max(64, rows // 4)
        self._urls = _urls(np.random.default_rng([seed, 1]), num_urls)
        self._url_ids = (self._counters * 977 + _power(random, rows, num_urls, 4.0)) % num_urls

    def plain(self, name: str, kind: str) -> Callable[[Random], Any]:
        """By the column's type."""
        if name in _FLAGS:
            return lambda random: (random.random(self._rows) < _FLAGS[name]).astype(np.int32)
        if name in _SMALL:
            return lambda random: self._small(random, name)
        if kind == "STRING":
            return lambda random: self._tokens(random, name)
        if kind == "LONG":
            return lambda random: random.integers(-(1 << 62), 1 << 62, self._rows)
        return lambda random: _power(random, self._rows, 100_000, 3.0).astype(np.int32)

    def _small(self, random: Random, name: str) -> NDArray[np.int32]:
        values = _power(random, self._rows, _SMALL[name], 2.0).astype(np.int32)
        return values if name not in _RARE else np.where(random.random(self._rows) < 0.03, values, 0).astype(np.int32)

    def _tokens(self, random: Random, name: str) -> pa.Array:
        """Empty in most rows, else one of a few."""
        texts = pa.array(["", *(f"{name.lower()}_{number}" for number in range(1, 200))])
        ids = np.where(random.random(self._rows) < 0.05, _power(random, self._rows, 200, 2.0), 0)
        return texts.take(pa.array(ids))

    def _WatchID(self, random: Random) -> Longs:
        return random.integers(1 << 61, 1 << 63, self._rows, np.int64, endpoint=False)

    def _EventTime(self, random: Random) -> pa.Array:
        return pa.array(self._times, pa.timestamp("ms"))

    def _ClientEventTime(self, random: Random) -> pa.Array:
        return pa.array(self._times + random.integers(-3_600, 3_600, self._rows) * 1000, pa.timestamp("ms"))

    _LocalEventTime = _ClientEventTime

    def _EventDate(self, random: Random) -> pa.Array:
        days = pa.array([(FIRST_DAY + dt.timedelta(days=day)).isoformat() for day in range(NUM_DAYS)])
        return days.take(pa.array((self._times - FIRST_MS) // DAY_MS))

    def _CounterID(self, random: Random) -> NDArray[np.int32]:
        return (self._counters + 62).astype(np.int32)

    def _UserID(self, random: Random) -> Longs:
        return _spread(self._users)

    def _ClientIP(self, random: Random) -> NDArray[np.int32]:
        moved = (self._users * 3 + random.integers(0, 3, self._rows)).astype(np.uint64) * np.uint64(2_654_435_761)
        return (moved & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)

    def _RegionID(self, random: Random) -> NDArray[np.int32]:
        regions = _power(np.random.default_rng(7), self._num_users, 5_000, 3.0)
        return regions[self._users].astype(np.int32) + 1

    def _ResolutionWidth(self, random: Random) -> NDArray[np.int32]:
        widths = np.array([0, 1024, 1280, 1366, 1600, 1680, 1920, *range(320, 1000, 10)], np.int32)
        return widths[_power(random, self._rows, len(widths), 2.0)]

    _WindowClientWidth = _ResolutionWidth

    def _ResolutionHeight(self, random: Random) -> NDArray[np.int32]:
        return (_power(random, self._rows, 120, 2.0) * 10 + 600).astype(np.int32)

    _WindowClientHeight = _ResolutionHeight

    def _MobilePhoneModel(self, random: Random) -> pa.Array:
        models = pa.array(["", "iPad", "iPhone", *(f"model {number}" for number in range(120))])
        ids = np.where(random.random(self._rows) < 0.06, _power(random, self._rows, len(models), 2.0), 0)
        return models.take(pa.array(ids))

    def _URL(self, random: Random) -> pa.Array:
        return self._urls.take(pa.array(self._url_ids))

    _OriginalURL = _URL

    def _URLHash(self, random: Random) -> Longs:
        return _spread(self._url_ids + 1_000_003)

    def _Referer(self, random: Random) -> pa.Array:
        texts = pa.concat_arrays([pa.array([""]), self._urls])
        return texts.take(pa.array(np.where(random.random(self._rows) < 0.2, 0, self._referers(random) + 1)))

    def _RefererHash(self, random: Random) -> Longs:
        return _spread(self._referers(random) + 2_000_003)

    def _referers(self, random: Random) -> Longs:
        return np.asarray((self._url_ids * 31 + _power(random, self._rows, 500, 2.0)) % len(self._urls))

    def _Title(self, random: Random) -> pa.Array:
        count = max(32, self._rows // 10)
        words = np.array(_WORDS)[random.integers(0, len(_WORDS), (count, 3))]
        texts = pa.array([f"{' '.join(row)} {number} — Google" if number % 97 == 0 else f"{' '.join(row)} {number}"
                          for number, row in enumerate(words.tolist())])  # fmt: skip
        return texts.take(pa.array(self._url_ids % count))

    def _SearchPhrase(self, random: Random) -> pa.Array:
        count = max(32, self._rows // 12)
        words = np.array(_WORDS)[random.integers(0, len(_WORDS), (count, 2))].tolist()
        texts = pa.array(["", *(f"{first} {second} {number}" for number, (first, second) in enumerate(words))])
        return texts.take(pa.array(np.where(self._searches, 1 + _power(random, self._rows, count, 2.5), 0)))

    def _SearchEngineID(self, random: Random) -> NDArray[np.int32]:
        return np.where(self._searches, 1 + _power(random, self._rows, 40, 2.0), 0).astype(np.int32)


def generate(rows: int, seed: int) -> pa.Table:
    """`rows` rows; numbers are int32 and int64, times are timestamps in milliseconds, dates are texts."""
    made = columns(rows, seed)
    arrays = [maker(np.random.default_rng([seed, 2, number])) for number, maker in enumerate(made.values())]
    return pa.table([pa.array(one) if isinstance(one, np.ndarray) else one for one in arrays], names=list(made))


def _power(random: Random, rows: int, count: int, skew: float) -> Longs:
    """Numbers below `count`, small ones more often; a skew of 1 is even."""
    return np.asarray((random.random(rows) ** skew * count).astype(np.int64))


def _spread(numbers: Longs) -> Longs:
    """Different numbers become different 63-bit ones."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed & np.uint64(0x7FFFFFFFFFFFFFFF)).view(np.int64))


def _urls(random: Random, count: int) -> pa.Array:
    """Distinct addresses of 20 to 400 characters, a few more than 1,000, some with 'google' in them."""
    hosts = random.integers(0, 3_000, count).tolist()
    words = np.array(_WORDS)[random.integers(0, len(_WORDS), (count, 2))].tolist()
    is_google = (random.random(count) < 0.01).tolist()
    lengths = np.minimum(1_500, (10 * random.pareto(1.2, count)).astype(np.int64)).tolist()
    filler = "abcdefghijklmnopqrstuvwxyz0123456789&=%_" * 40
    texts = []
    for number in range(count):
        first, second = words[number]
        host = (
            "www.google.ru"
            if is_google[number]
            else f"{_WORDS[hosts[number] % 13].replace('google', 'gogol')}{hosts[number]}"
        )
        suffix = _SUFFIXES[hosts[number] % len(_SUFFIXES)]
        path = f"{first}/{second}".replace("google", "gogol")
        texts.append(f"http://{host}.{suffix}/{path}/{number}.html?{filler[: lengths[number]]}")
    return pa.array(texts)


_LONGS = frozenset({"WatchID", "UserID", "FUniqID", "ParamPrice", "RefererHash", "URLHash"})
_TIMES = frozenset({"EventTime", "ClientEventTime", "LocalEventTime"})
_STRINGS = frozenset(
    """
    Title EventDate URL Referer FlashMinor2 UserAgentMinor MobilePhoneModel Params SearchPhrase PageCharset
    OriginalURL HitColor BrowserLanguage BrowserCountry SocialAction SocialSourcePage ParamOrderID
    ParamCurrency OpenstatServiceName OpenstatCampaignID OpenstatAdID OpenstatSourceID UTMSource UTMMedium
    UTMCampaign UTMContent UTMTerm FromTag
    """.split()  # noqa: SIM905 -- a list of strings is three times as long
)
_NAMES = """
    WatchID JavaEnable Title GoodEvent EventTime EventDate CounterID ClientIP RegionID UserID CounterClass OS
    UserAgent URL Referer IsRefresh RefererCategoryID RefererRegionID URLCategoryID URLRegionID
    ResolutionWidth ResolutionHeight ResolutionDepth FlashMajor FlashMinor FlashMinor2 NetMajor NetMinor
    UserAgentMajor UserAgentMinor CookieEnable JavascriptEnable IsMobile MobilePhone MobilePhoneModel Params
    IPNetworkID TraficSourceID SearchEngineID SearchPhrase AdvEngineID IsArtifical WindowClientWidth
    WindowClientHeight ClientTimeZone ClientEventTime SilverlightVersion1 SilverlightVersion2
    SilverlightVersion3 SilverlightVersion4 PageCharset CodeVersion IsLink IsDownload IsNotBounce FUniqID
    OriginalURL HID IsOldCounter IsEvent IsParameter DontCountHits WithHash HitColor LocalEventTime Age Sex
    Income Interests Robotness RemoteIP WindowName OpenerName HistoryLength BrowserLanguage BrowserCountry
    SocialNetwork SocialAction HTTPError SendTiming DNSTiming ConnectTiming ResponseStartTiming
    ResponseEndTiming FetchTiming SocialSourceNetworkID SocialSourcePage ParamPrice ParamOrderID ParamCurrency
    ParamCurrencyID OpenstatServiceName OpenstatCampaignID OpenstatAdID OpenstatSourceID UTMSource UTMMedium
    UTMCampaign UTMContent UTMTerm FromTag HasGCLID RefererHash URLHash CLID
""".split()  # noqa: SIM905 -- as above


def _kind(name: str) -> str:
    if name in _STRINGS:
        return "STRING"
    if name in _TIMES:
        return "TIMESTAMP"
    return "LONG" if name in _LONGS else "INT"


SCHEMA = tuple((name, _kind(name)) for name in _NAMES)
"""Columns and their types in Merlot, in order."""
