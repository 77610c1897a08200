"""ClickBench's 43 queries as Pinot writes them, with literals that a seed chooses, and what an answer decides.

ClickHouse's benchmark: https://github.com/ClickHouse/ClickBench. EventTime is a TIMESTAMP and EventDate a text, as its
Pinot entry has them. Rows that LIMIT cuts among equal ones are anybody's choice: of such queries the ordering values
are compared, else every column.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.bench.clickbench_data import SCHEMA

WORDS = ("google", "kino", "pogoda", "auto", "karta")


@dataclass(frozen=True)
class Query:
    """One query, for both engines."""

    sql: str
    """In Pinot's dialect."""
    duckdb: str
    compared: tuple[int, ...] | None = None
    """Columns whose values are decided in all rows; None: all. No column: just how many rows there are."""


def queries(seed: int, counter: int, hashes: tuple[int, int], user: int) -> dict[str, Query]:
    """Q0 to Q42. Literals are of the seed, and what must be found in the rows of the caller."""
    chosen = random.Random(seed)
    word, title = chosen.choice(WORDS), chosen.choice(("Google", "forum", "igry"))
    month = ("2013-07-01", f"2013-07-{chosen.randint(20, 31)}")
    within = f"CounterID = {counter} AND EventDate >= '{month[0]}' AND EventDate <= '{month[1]}'"
    start, widths = chosen.randint(10, 20), range(90)
    top = f"ORDER BY c DESC LIMIT {chosen.choice((10, 10, 12))}"
    texts = {
        0: "SELECT COUNT(*) FROM hits",
        1: f"SELECT COUNT(*) FROM hits WHERE AdvEngineID <> {chosen.choice((0, 1, 2))}",
        2: "SELECT SUM(AdvEngineID), COUNT(*), AVG(ResolutionWidth) FROM hits",
        3: "SELECT AVG(UserID) FROM hits",
        4: "SELECT COUNT(DISTINCT UserID) FROM hits",
        5: "SELECT COUNT(DISTINCT SearchPhrase) FROM hits",
        6: "SELECT MIN(EventDate), MAX(EventDate) FROM hits",
        7: "SELECT AdvEngineID, COUNT(*) AS c FROM hits WHERE AdvEngineID <> 0 GROUP BY AdvEngineID "
        "ORDER BY c DESC LIMIT 100",
        8: f"SELECT RegionID, COUNT(DISTINCT UserID) AS c FROM hits GROUP BY RegionID {top}",
        9: "SELECT RegionID, SUM(AdvEngineID), COUNT(*) AS c, AVG(ResolutionWidth), COUNT(DISTINCT UserID) FROM hits "
        f"GROUP BY RegionID {top}",
        10: "SELECT MobilePhoneModel, COUNT(DISTINCT UserID) AS c FROM hits WHERE MobilePhoneModel <> '' "
        f"GROUP BY MobilePhoneModel {top}",
        11: "SELECT MobilePhone, MobilePhoneModel, COUNT(DISTINCT UserID) AS c FROM hits WHERE MobilePhoneModel <> '' "
        f"GROUP BY MobilePhone, MobilePhoneModel {top}",
        12: f"SELECT SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase {top}",
        13: "SELECT SearchPhrase, COUNT(DISTINCT UserID) AS c FROM hits WHERE SearchPhrase <> '' "
        f"GROUP BY SearchPhrase {top}",
        14: "SELECT SearchEngineID, SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' "
        f"GROUP BY SearchEngineID, SearchPhrase {top}",
        15: f"SELECT UserID, COUNT(*) AS c FROM hits GROUP BY UserID {top}",
        16: f"SELECT UserID, SearchPhrase, COUNT(*) AS c FROM hits GROUP BY UserID, SearchPhrase {top}",
        17: "SELECT UserID, SearchPhrase, COUNT(*) FROM hits GROUP BY UserID, SearchPhrase LIMIT 10",
        18: "SELECT UserID, EXTRACT(MINUTE FROM EventTime) AS m, SearchPhrase, COUNT(*) AS c FROM hits "
        f"GROUP BY UserID, m, SearchPhrase {top}",
        19: f"SELECT UserID FROM hits WHERE UserID = {user} LIMIT 1000",
        20: f"SELECT COUNT(*) FROM hits WHERE URL LIKE '%{word}%'",
        21: f"SELECT SearchPhrase, MIN(URL), COUNT(*) AS c FROM hits WHERE URL LIKE '%{word}%' AND SearchPhrase <> '' "
        f"GROUP BY SearchPhrase {top}",
        22: "SELECT SearchPhrase, MIN(URL), MIN(Title), COUNT(*) AS c, COUNT(DISTINCT UserID) FROM hits "
        f"WHERE Title LIKE '%{title}%' AND URL NOT LIKE '%.{word}.%' AND SearchPhrase <> '' "
        f"GROUP BY SearchPhrase {top}",
        23: f"SELECT * FROM hits WHERE URL LIKE '%{word}%' ORDER BY EventTime LIMIT 10",
        24: "SELECT SearchPhrase, EventTime FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime LIMIT 10",
        25: "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY SearchPhrase LIMIT 10",
        26: "SELECT SearchPhrase, EventTime FROM hits WHERE SearchPhrase <> '' "
        "ORDER BY EventTime, SearchPhrase LIMIT 10",
        27: "SELECT CounterID, AVG(LENGTH(URL)) AS l, COUNT(*) AS c FROM hits WHERE URL <> '' GROUP BY CounterID "
        f"HAVING COUNT(*) > {chosen.choice((20, 30, 100))} ORDER BY l DESC LIMIT 25",
        28: r"SELECT REGEXP_REPLACE(Referer, '^https?://(?:www\.)?([^/]+)/.*$', '$1') AS k, AVG(LENGTH(Referer)) AS l, "
        "COUNT(*) AS c, MIN(Referer) FROM hits WHERE Referer <> '' GROUP BY k HAVING COUNT(*) > 100 "
        "ORDER BY l DESC LIMIT 25",
        29: "SELECT {} FROM hits".format(", ".join(f"SUM(ResolutionWidth + {k})" if k else "SUM(ResolutionWidth)"
                                                   for k in widths)),
        30: "SELECT SearchEngineID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
        f"WHERE SearchPhrase <> '' GROUP BY SearchEngineID, ClientIP {top}",
        31: "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
        f"WHERE SearchPhrase <> '' GROUP BY WatchID, ClientIP {top}",
        32: "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits "
        f"GROUP BY WatchID, ClientIP {top}",
        33: f"SELECT URL, COUNT(*) AS c FROM hits GROUP BY URL {top}",
        34: f"SELECT 1, URL, COUNT(*) AS c FROM hits GROUP BY 1, URL {top}",
        35: f"SELECT ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - {start}, COUNT(*) AS c FROM hits "
        f"GROUP BY ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - {start} {top}",
        36: f"SELECT URL, COUNT(*) AS c FROM hits WHERE {within} AND DontCountHits = 0 AND IsRefresh = 0 AND URL <> '' "
        f"GROUP BY URL {top}",
        37: f"SELECT Title, COUNT(*) AS c FROM hits WHERE {within} AND DontCountHits = 0 AND IsRefresh = 0 "
        f"AND Title <> '' GROUP BY Title {top}",
        38: f"SELECT URL, COUNT(*) AS c FROM hits WHERE {within} AND IsRefresh = 0 AND IsLink <> 0 AND IsDownload = 0 "
        "GROUP BY URL ORDER BY c DESC LIMIT 10 OFFSET 100",
        39: "SELECT TraficSourceID, SearchEngineID, AdvEngineID, CASE WHEN (SearchEngineID = 0 AND AdvEngineID = 0) "
        f"THEN Referer ELSE '' END AS Src, URL AS Dst, COUNT(*) AS c FROM hits WHERE {within} AND IsRefresh = 0 "
        "GROUP BY TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst ORDER BY c DESC LIMIT 10 OFFSET 100",
        40: f"SELECT URLHash, EventDate, COUNT(*) AS c FROM hits WHERE {within} AND IsRefresh = 0 "
        f"AND TraficSourceID IN (-1, 6) AND RefererHash = {hashes[0]} GROUP BY URLHash, EventDate "
        "ORDER BY c DESC LIMIT 10",
        41: f"SELECT WindowClientWidth, WindowClientHeight, COUNT(*) AS c FROM hits WHERE {within} AND IsRefresh = 0 "
        f"AND DontCountHits = 0 AND URLHash = {hashes[1]} GROUP BY WindowClientWidth, WindowClientHeight "
        "ORDER BY c DESC LIMIT 10",
        42: f"SELECT DATETRUNC('MINUTE', EventTime) AS m, COUNT(*) AS c FROM hits WHERE CounterID = {counter} "
        "AND EventDate >= '2013-07-14' AND EventDate <= '2013-07-15' AND IsRefresh = 0 AND DontCountHits = 0 "
        "GROUP BY m ORDER BY m LIMIT 10 OFFSET 5",
    }  # fmt: skip
    every = {number: Query(text, _duckdb(number, text), _COMPARED.get(number)) for number, text in texts.items()}
    return {f"Q{number}": query for number, query in every.items()}


_BY_COUNT = {8: 1, 10: 1, 11: 2, 12: 1, 13: 1, 14: 2, 15: 1, 16: 2, 18: 3, 21: 2, 22: 3, 30: 2, 31: 2, 32: 2, 33: 1,
             34: 2, 35: 4, 36: 1, 37: 1, 38: 1, 39: 5, 40: 2, 41: 2, 9: 2, 27: 1, 28: 1, 24: 1}  # fmt: skip
"""Queries cut by LIMIT after ORDER BY one column, and its place: equal ones may be others."""
_EVENT_TIME = [name for name, _ in SCHEMA].index("EventTime")
_COMPARED: dict[int, tuple[int, ...]] = {17: (), 23: (_EVENT_TIME,)} | {
    number: (place,) for number, place in _BY_COUNT.items()
}


def _duckdb(number: int, text: str) -> str:
    """Where DuckDB says it otherwise."""
    if number == 28:
        return text.replace("REGEXP_REPLACE", "regexp_replace").replace("$1", r"\1")
    return text.replace("DATETRUNC('MINUTE', EventTime)", "epoch_ms(date_trunc('MINUTE', EventTime))")
