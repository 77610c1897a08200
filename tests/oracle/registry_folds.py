"""How each aggregate is asked at random, and what DuckDB is asked in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.oracle.registry_recipe import Argument

_NONE, _NAN, _LEAST, _MOST, _LONG_MIN = (
    "",
    "'nan'::DOUBLE",
    "'-inf'::DOUBLE",
    "'inf'::DOUBLE",
    "'-9223372036854775808'::BIGINT",
)


@dataclass(frozen=True)
class Fold:
    """An aggregate in both dialects; `{F}` is where its filter goes.

    `empty` is what it is of no rows with null handling off.
    """

    arguments: tuple[Argument, ...]
    theirs: str
    empty: str = _NONE


def _moments() -> dict[str, tuple[Fold, ...]]:
    one = {
        "varpop": "var_pop",
        "varsamp": "var_samp",
        "stddevpop": "stddev_pop",
        "stddevsamp": "stddev_samp",
    }
    two = {"covarpop": "covar_pop", "covarsamp": "covar_samp"}
    return {
        **{name: (Fold(("w",), f"{word}({{0}}::DOUBLE){{F}}", _LEAST),) for name, word in one.items()},
        **{
            name: (Fold(("w", "w"), f"{word}({{0}}::DOUBLE, {{1}}::DOUBLE){{F}}", _LEAST),)
            for name, word in two.items()
        },
    }


def _many() -> dict[str, tuple[Fold, ...]]:
    """Of lists."""
    listed = "list_aggregate(flatten(list({0}){F}), '%s')"
    counted = "COALESCE(len(flatten(list({0}){F})), 0)"
    refs = "ref_%s(flatten(list({0}){F})::DOUBLE[])"
    distinct = "COALESCE(len(list_distinct(flatten(list({0}){F}))), 0)"
    return {
        "countmv": (Fold(("a",), counted), Fold(("e",), counted)),
        "summv": (Fold(("a",), f"{listed % 'sum'}::DOUBLE", "0"),),
        "avgmv": (Fold(("a",), f"{listed % 'sum'}::DOUBLE / {counted}", _LEAST),),
        "minmv": (Fold(("a",), f"{listed % 'min'}::DOUBLE", _MOST),),
        "maxmv": (Fold(("a",), f"{listed % 'max'}::DOUBLE", _LEAST),),
        "minstringmv": (Fold(("e",), listed % "min"),),
        "maxstringmv": (Fold(("e",), listed % "max"),),
        "distinctcountmv": (Fold(("a",), distinct), Fold(("e",), distinct)),
        "distinctcounthllplusmv": (Fold(("a",), distinct), Fold(("e",), distinct)),
        "distinctcountbitmapmv": (Fold(("a",), distinct),),
        "distinctsummv": (Fold(("a",), refs % "distinctsum", "0"),),
        "distinctavgmv": (Fold(("a",), refs % "distinctavg", _LEAST),),
        "minmaxrangemv": (Fold(("a",), refs % "minmaxrange", _LEAST),),
        "percentilemv": (Fold(("a", ("50",)), refs % "percentile_50", _LEAST),),
        "percentileestmv": (Fold(("a", ("10",)), f"({refs % 'percentile_10'})::BIGINT", _LONG_MIN),),
    }


def _percentiles(name: str, cast: str, empty: str) -> tuple[Fold, ...]:
    return tuple(
        Fold(("w", (str(p),)), f"ref_percentile_{p}(list({{0}}::DOUBLE){{F}}){cast}", empty)
        for p in (0, 10, 50, 99, 100)
    )


AGGREGATES: Final[dict[str, tuple[Fold, ...]]] = {
    "count": (Fold(("w",), "count({0}){F}"), Fold(("s",), "count({0}){F}")),
    "sum": (Fold(("w",), "sum({0}){F}::DOUBLE", "0"), Fold(("r",), "sum({0}){F}", "0")),
    "sumlong": (Fold(("w",), "sum({0}){F}", "0"),),
    "sum0": (Fold(("w",), "COALESCE(sum({0}){F}::DOUBLE, 0)", "0"),),
    "avg": (Fold(("w",), "avg({0}){F}", _LEAST), Fold(("r",), "avg({0}){F}", _LEAST)),
    "min": (Fold(("w",), "min({0}){F}::DOUBLE", _MOST), Fold(("y",), "min({0}){F}", _MOST)),
    "max": (Fold(("L",), "max({0}){F}::DOUBLE", _LEAST), Fold(("y",), "max({0}){F}", _LEAST)),
    "minstring": (Fold(("s",), "min({0}){F}"),),
    "maxstring": (Fold(("s",), "max({0}){F}"),),
    "anyvalue": (Fold(("w",), "min({0}){F}"), Fold(("s",), "min({0}){F}")),
    "minlong": (Fold(("L",), "min({0}){F}", "9223372036854775807"),),
    "maxlong": (Fold(("L",), "max({0}){F}", _LONG_MIN),),
    "distinctcount": (
        Fold(("w",), "count(DISTINCT {0}){F}"),
        Fold(("s",), "count(DISTINCT {0}){F}"),
        Fold(("x",), "count(DISTINCT {0}){F}"),
    ),
    "distinctcountbitmap": (Fold(("I",), "count(DISTINCT {0}){F}"),),
    "distinctcountoffheap": (Fold(("L",), "count(DISTINCT {0}){F}"),),
    "distinctcountsmarthll": (Fold(("s",), "count(DISTINCT {0}){F}"),),
    "distinctcounthllplus": (Fold(("L",), "count(DISTINCT {0}){F}"), Fold(("S",), "count(DISTINCT {0}){F}")),
    "distinctcountull": (Fold(("s",), "count(DISTINCT {0}){F}"),),
    "distinctcountthetasketch": (Fold(("L",), "count(DISTINCT {0}){F}"), Fold(("S",), "count(DISTINCT {0}){F}")),
    "distinctsum": (Fold(("w",), "ref_distinctsum(list({0}::DOUBLE){F})", "0"),),
    "distinctavg": (Fold(("w",), "ref_distinctavg(list({0}::DOUBLE){F})", _LEAST),),
    "percentile": _percentiles("percentile", "", _LEAST),
    "percentilesmarttdigest": _percentiles("percentilesmarttdigest", "", _LEAST),
    "percentileest": _percentiles("percentileest", "::BIGINT", _LONG_MIN),
    "mode": (
        Fold(("w",), "ref_mode_min(list({0}::DOUBLE){F})", _LEAST),
        *(
            Fold(("w", (f"'{word}'",)), f"ref_mode_{word.lower()}(list({{0}}::DOUBLE){{F}})", _LEAST)
            for word in ("MIN", "MAX", "AVG")
        ),
    ),
    "minmaxrange": (Fold(("w",), "ref_minmaxrange(list({0}::DOUBLE){F})", _LEAST),),
    "histogram": (
        Fold(("w", ("-20",), ("20",), ("5",)), "COALESCE(ref_histogram(list({0}::DOUBLE){F}), [0.0, 0, 0, 0, 0])"),
    ),
    "arrayagg": (
        Fold(("m", ("'LONG'",)), "ref_all_whole(list({0}){F})", "[]"),
        Fold(("s", ("'STRING'",)), "ref_all_texts(list({0}){F})", "[]"),
        Fold(("m", ("'LONG'",), ("true",)), "ref_once_whole(list({0}){F})", "[]"),
    ),
    "listagg": (
        Fold(("s", ("','",)), "ref_joined(list({0}){F})", "''"),
        Fold(("s", ("','",), ("true",)), "ref_joined_once(list({0}){F})", "''"),
    ),
    "sumprecision": (Fold(("w",), "ref_sumprecision(list({0}::DECIMAL(38, 18)){F})", "'0'"),),
    "firstwithtime": (Fold(("m", "m", ("'LONG'",)), "ref_at_first(list({0}){F}, list({1}){F})", _LONG_MIN),),
    "lastwithtime": (Fold(("m", "m", ("'LONG'",)), "ref_at_last(list({0}){F}, list({1}){F})", _LONG_MIN),),
    "booland": (Fold(("b",), "bool_and({0}){F}", "true"),),
    "boolor": (Fold(("b",), "bool_or({0}){F}", "false"),),
    **_moments(),
    "skewness": (Fold(("w",), "ref_skewness(list({0}::DOUBLE){F})", _NAN),),
    **_many(),
}

_ESTIMATES = "an estimate: its bytes and its error are held to the published implementation in tests/unit/aggregates"
_SKETCH = "a sketch's bytes: held to the published implementation in tests/unit/aggregates"
AGGREGATES_LEFT_OUT: Final = {
    "segmentpartitioneddistinctcount": "exact only where no value is in two segments",
    **dict.fromkeys(["exprmin", "exprmax"], "an answer has several rows: test_projections has them against sorting"),
    "idset": "a text of its own: id_sets.slt asks IN_ID_SET of it",
    "funnelcount": "it has clauses: funnels.slt compares it with counting distinct values",
    **dict.fromkeys(
        ["funnelmaxstep", "funnelmatchstep", "funnelcompletecount", "funnelstepdurationstats"],
        "it has conditions: funnel_windows.slt compares it with joins, tests/kernels with Pinot's rules",
    ),
    "kurtosis": "DuckDB's and Pinot's differ in few values; statistics.slt has it against a formula",
    "corr": "of constants, NaN or not by the last bit; statistics.slt has it",
    **dict.fromkeys(
        [
            "distinctcounthll",
            "distinctcounthllmv",
            "distinctcountcpcsketch",
            "percentiletdigest",
            "percentiletdigestmv",
            "percentilekll",
            "percentilekllmv",
        ],
        _ESTIMATES,
    ),
    **dict.fromkeys(
        [
            "distinctcounttuplesketch",
            "distinctcountrawintegersumtuplesketch",
            "sumvaluesintegersumtuplesketch",
            "avgvalueintegersumtuplesketch",
        ],
        "of stored sketches alone: stored_sketches.slt compares them with counting their keys",
    ),
    **dict.fromkeys(
        [
            "distinctcountrawhll",
            "distinctcountrawhllplus",
            "distinctcountrawhllplusmv",
            "distinctcountrawhllmv",
            "distinctcountrawull",
            "distinctcountrawthetasketch",
            "distinctcountrawcpcsketch",
            "percentilerawtdigest",
            "percentilerawtdigestmv",
            "percentilerawkll",
            "percentilerawkllmv",
        ],
        _SKETCH,
    ),
}
"""Aggregates that no random query asks for, and why."""
