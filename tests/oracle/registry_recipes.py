"""How each function of the registry is asked at random, or why it is not."""

from __future__ import annotations

from typing import Final

from tests.oracle.registry_recipe import Recipe, recipe
from tests.oracle.registry_texts import LIST_RECIPES, TEXT_RECIPES

_BITS = tuple(str(bit) for bit in (0, 1, 5, 28, 31))
_LONG_BITS = (*_BITS, "32", "63")
_UNITS = ("'SECONDS'", "'MINUTES'", "'HOURS'", "'DAYS'")
_ZONES = ("'America/New_York'", "'Europe/Berlin'", "'Australia/Lord_Howe'", "'Asia/Kolkata'")
_AT = "make_timestamp({0} * 1000)"


def _mathematics() -> dict[str, tuple[Recipe, ...]]:
    names = [
        "exp",
        "ln",
        "log2",
        "log10",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "cot",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
    ]
    return {name: (recipe("r", f"ref_{name}({{0}}::DOUBLE)", "y"),) for name in names}


def _epochs() -> dict[str, tuple[Recipe, ...]]:
    made: dict[str, tuple[Recipe, ...]] = {}
    for word, ms in (("seconds", 1000), ("minutes", 60_000), ("hours", 3_600_000), ("days", 86_400_000)):
        made[f"toepoch{word}"] = (recipe("m", f"{{0}} // {ms}", "W"),)
        made[f"toepoch{word}rounded"] = (recipe("m n", f"{{0}} // {ms} // {{1}} * {{1}}", "W", n=("1", "7", "100")),)
        made[f"toepoch{word}bucket"] = (recipe("m n", f"{{0}} // {ms} // {{1}}", "W", n=("1", "7", "100")),)
        made[f"fromepoch{word}"] = (recipe("w", f"{{0}}::BIGINT * {ms}", "W"),)
        made[f"fromepoch{word}bucket"] = (recipe("w n", f"{{0}}::BIGINT * {{1}} * {ms}", "W", n=("1", "7", "100")),)
    return made


def _fields() -> dict[str, tuple[Recipe, ...]]:
    words = {
        "year": "year",
        "yearofweek": "isoyear",
        "quarter": "quarter",
        "monthofyear": "month",
        "weekofyear": "week",
        "dayofyear": "dayofyear",
        "dayofmonth": "day",
        "dayofweek": "isodow",
        "hour": "hour",
        "minute": "minute",
        "second": "second",
    }
    made = {
        name: (
            recipe("m", f"{word}({_AT})", "w"),
            recipe("m z", f"{word}(timezone({{1}}, timezone('UTC', {_AT})))", "w", z=_ZONES),
            recipe("T", f"{word}({{0}})", "w"),
        )
        for name, word in words.items()
    }
    return made | {"millisecond": (recipe("m", "{0} % 1000", "w"),)}


def _numbers() -> dict[str, tuple[Recipe, ...]]:
    return {
        "coalesce": tuple(Recipe((of, of), "coalesce({0}, {1})", of, needs_nulls=True) for of in ("w", "s")),
        "nullif": (recipe("w w", "CASE WHEN {0} = {1} THEN {N} ELSE {0} END", "w"),),
        "if": (
            recipe("b w w", "CASE WHEN {0} THEN {1} ELSE {2} END", "w"),
            recipe("b s s", "CASE WHEN {0} THEN {1} ELSE {2} END", "s"),
        ),
        "least": (
            recipe("w w", "least({0}, {1})", "w"),
            recipe("L L w", "least({0}, {1}, {2})", "W"),
            recipe("s s", "least({0}, {1})", "s"),
        ),
        "greatest": (
            recipe("w w", "greatest({0}, {1})", "w"),
            recipe("L L w", "greatest({0}, {1}, {2})", "W"),
            recipe("s s", "greatest({0}, {1})", "s"),
        ),
        "plus": (recipe("w w", "{0} + {1}", "w"), recipe("r r", "{0} + {1}", "r")),
        "minus": (recipe("w w", "{0} - {1}", "w"), recipe("r r", "{0} - {1}", "r")),
        "times": (recipe("w w", "{0} * {1}", "w"), recipe("r w", "{0} * {1}", "r")),
        "mod": (recipe("L n", "{0} % {1}", "w"),),
        "divide": (recipe("w n", "{0} / {1}", "y"), recipe("r n", "{0} / {1}", "y")),
        "negate": (recipe("w", "-({0})", "w"), recipe("R", "-({0})", "R")),
        "abs": (recipe("w", "abs({0})", "w"), recipe("R", "abs({0})", "R")),
        "round": (
            recipe("w n", "{0} // {1} * {1}", "w"),
            recipe("m n", "{0} // {1} * {1}", "W", n=("1", "1000", "300000")),
        ),
        "ceil": (recipe("r", "ceil({0})", "r"), recipe("w", "{0}", "w")),
        "floor": (recipe("r", "floor({0})", "r"), recipe("w", "{0}", "w")),
        "sign": (recipe("r", "sign({0})", "r"), recipe("L", "sign({0})", "w")),
        "rounddecimal": (
            recipe("r", "ref_nearest({0}::DOUBLE)", "r"),
            recipe("r n", "ref_half_up({0}::DOUBLE, {1})", "y", n=("0", "1", "-1", "3")),
        ),
        "truncate": (
            recipe("r", "trunc({0}) + 0", "r"),
            recipe("r n", "ref_cut({0}::DOUBLE, {1})", "y", n=("0", "1", "-1", "3")),
        ),
        **_mathematics(),
        "degrees": (recipe("r", "degrees({0})", "y"),),
        "radians": (recipe("r", "radians({0})", "y"),),
        "power": (recipe("r n", "ref_power({0}, {1})", "y", n=("0", "2", "3", "-1", "0.5")),),
        "atan2": (recipe("r r", "ref_atan2({0}, {1})", "y"),),
        "hypot": (recipe("r r", "ref_hypot({0}, {1})", "y"),),
        "isnan": (recipe("R", "isnan({0})::BIGINT", "w"),),
        "isinfinite": (recipe("R", "isinf({0})::BIGINT", "w"),),
        "isfinite": (recipe("R", "isfinite({0})::BIGINT", "w"),),
        "ifnotfinite": (
            recipe(
                "R r", "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN isfinite({0}) THEN {0} ELSE {1} END", "R"
            ),
        ),
        "intdiv": (recipe("L n", "ref_intdiv({0}, {1})", "W"),),
        "intdivorzero": (
            recipe(
                "w w",
                "CASE WHEN {0} IS NULL THEN NULL WHEN {1} = 0 THEN 0 ELSE ref_intdiv({0}, nullif({1}, 0)) END",
                "w",
            ),
        ),
        "moduloorzero": (
            recipe(
                "w w",
                "CASE WHEN {0} IS NULL THEN NULL WHEN {1} = 0 THEN 0 ELSE {0} % {1} END",
                "w",
            ),
        ),
        "positivemodulo": (recipe("L n", "ref_positivemodulo({0}, {1})", "w"),),
        "gcd": (recipe("w w", "ref_gcd({0}, {1})", "w"),),
        "lcm": (recipe("w w", "ref_lcm({0}, {1})", "w"),),
        "bitand": (recipe("L L", "{0} & {1}", "W"), recipe("I I", "{0} & {1}", "W")),
        "bitor": (recipe("L L", "{0} | {1}", "W"), recipe("I L", "{0} | {1}", "W")),
        "bitxor": (recipe("L L", "xor({0}, {1})", "W"),),
        "bitnot": (recipe("L", "~({0})", "W"), recipe("I", "~({0})", "W")),
        "bitshiftleft": (
            recipe("I n", "ref_shift_left_32({0}, {1})", "W", n=_BITS),
            recipe("L n", "ref_shift_left_64({0}, {1})", "W", n=_LONG_BITS),
        ),
        "bitshiftright": (
            recipe("I n", "ref_shift_right({0}, {1})", "W", n=_BITS),
            recipe("L n", "ref_shift_right({0}, {1})", "W", n=_LONG_BITS),
        ),
        "bitshiftrightunsigned": (
            recipe("I n", "ref_shift_unsigned_32({0}, {1})", "W", n=_BITS),
            recipe("L n", "ref_shift_unsigned_64({0}, {1})", "W", n=_LONG_BITS),
        ),
        "bitextract": (recipe("L n", "ref_bit({0}, {1})", "w", n=_LONG_BITS),),
        "bitmask": (recipe("n", "ref_bitmask({0})", "W", n=_LONG_BITS),),
        "byteswapint": (recipe("I", "ref_swap_32({0})", "W"),),
        "byteswaplong": (recipe("L", "ref_swap_64({0})", "W"),),
    }


def _instants() -> dict[str, tuple[Recipe, ...]]:
    truncated = "epoch_ms(date_trunc({0}, make_timestamp({1} * 1000)))"
    added = "epoch_ms(make_timestamp({2} * 1000) + to_%s({1}))"
    return {
        "datetrunc": (
            recipe(
                "unit m",
                truncated,
                "m",
                unit=("'second'", "'minute'", "'hour'", "'day'", "'week'", "'month'", "'quarter'", "'year'"),
            ),
        ),
        **_epochs(),
        "totimestamp": (recipe("m", "{0}", "t"),),
        "fromtimestamp": (recipe("T", "epoch_ms({0})", "W"),),
        "timeconvert": (
            Recipe(("w", ("'MINUTES'",), ("'HOURS'",)), "ref_towards_zero({0}, 60)", "w"),
            Recipe(("w", ("'DAYS'",), ("'SECONDS'",)), "{0} * 86400", "w"),
        ),
        "timestampadd": tuple(
            recipe("unit w m", added % word, "m", unit=(f"'{word[:-1].upper()}'",))
            for word in ("seconds", "minutes", "hours", "days", "weeks", "months", "quarters")
        ),
        "timestampdiff": (
            *(
                Recipe(((f"'{unit}'",), "m", "m"), f"ref_towards_zero({{2}} - {{1}}, {ms})", "W")
                for unit, ms in (("MILLISECOND", 1), ("HOUR", 3_600_000), ("DAY", 86_400_000))
            ),
            Recipe((("'MONTH'",), "m", "m"), "ref_months({1}, {2})", "w"),
        ),
        **_fields(),
        "timezonehour": (recipe("z m", "ref_towards_zero(ref_offset({0}, {1}), 3600)", "w", z=_ZONES),),
        "timezoneminute": (recipe("z m", "ref_towards_zero(ref_offset({0}, {1}), 60) % 60", "w", z=_ZONES),),
        "todatetime": (
            Recipe(("m", ("'yyyy-MM-dd HH:mm:ss.SSS'",)), f"strftime({_AT}, '%Y-%m-%d %H:%M:%S.%g')", "s"),
            Recipe(("m", ("'dd/MM/yyyy HH'",)), f"strftime({_AT}, '%d/%m/%Y %H')", "s"),
        ),
        "fromdatetime": (
            Recipe(
                ("m",),
                "{0} // 86400000 * 86400000",
                "m",
                (),
                "FROMDATETIME(TODATETIME({0}, 'yyyy-MM-dd'), 'yyyy-MM-dd')",
            ),
        ),
        "datetimeconvert": (
            Recipe(
                ("m", ("'1:MILLISECONDS:EPOCH'",), ("'1:SECONDS:EPOCH'",), ("'15:MINUTES'",)),
                "{0} // 900000 * 900",
                "W",
            ),
        ),
        "datetimeconvertwindowhop": (
            Recipe(
                ("m",),
                "{0} // 900000 * 60 - 90",
                "W",
                (),
                "ARRAYSUMLONG(DATETIMECONVERTWINDOWHOP({0}, '1:MILLISECONDS:EPOCH', '1:MINUTES:EPOCH', '15:MINUTES',"
                " '1:HOURS'))",
            ),
        ),
    }


RECIPES: Final[dict[str, tuple[Recipe, ...]]] = {**_numbers(), **_instants(), **TEXT_RECIPES, **LIST_RECIPES}

OPERATORS: Final = frozenset(
    [
        "equals",
        "not_equals",
        "less_than",
        "less_than_or_equal",
        "greater_than",
        "greater_than_or_equal",
        "between",
        "in",
        "not_in",
        "like",
        "and",
        "or",
        "not",
        "is_null",
        "is_not_null",
        "case",
        "cast",
    ]
)
"""Written in conditions, which `wild_queries` makes."""

LEFT_OUT: Final = {
    "now": "the oracle has another now",
    "ago": "the oracle has another now",
    "jsonmatch": "conditions in a text: compared with walking the documents, and with DuckDB in json_match.slt",
    "textmatch": "conditions in a text: text_match.slt compares it with LIKE",
}
"""Functions that no random query asks for, and why."""
