"""Rules of a MergeRollupTask."""

from __future__ import annotations

from typing import Final

from merlot.errors import InvalidInputError
from merlot.ids import OFFLINE_SUFFIX, REALTIME_SUFFIX
from merlot.spec.rules.language import (
    ITEM,
    OLD,
    SELF,
    MalformedError,
    Names,
    Operand,
    RuleCondition,
    has,
    is_empty,
    pairs,
    some,
    unique,
)
from merlot.spec.rules.rule import Rule, Rules
from merlot.spec.tasks import MAX_LEVELS, MergeType
from merlot.values import periods
from merlot.values.periods import Period

_TABLE: Final = SELF.field("table")
_LEVELS: Final = SELF.field("levels")
_SCHEDULE: Final = SELF.field("schedule", default="1m")
_ZERO: Final = "^0+[a-z]+$"
_PERIOD: Final = "^[0-9]*[1-9][0-9]*(s|m|h|d|w|mo)$"
_CRON: Final = r"^\s*(\S+\s+){4}\S+\s*$"
LOOKS_LIKE_A_SCHEDULE: Final = _SCHEDULE.matches(_PERIOD) | _SCHEDULE.starts_with("@") | _SCHEDULE.matches(_CRON)
"""Condition on the schedule, as far as CEL can express it; `rollup_checks` parses the schedule."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MONTH_S: Final = 30 * 86_400


def _merge_type(level: Operand) -> Operand:
    return level.field("mergeType", default="concat", allowed=tuple(MergeType))


def _period(operand: Operand, names: Names) -> Period:
    try:
        return periods.parse(operand.value(names, str))
    except InvalidInputError:
        raise MalformedError(operand.cel) from None


def _number(period: str) -> str:
    """Return CEL for the number of a period."""
    return f"int({period}.endsWith('mo') ? {period}.replace('mo', '') : {period}.substring(0, size({period}) - 1))"


def _seconds(period: str) -> str:
    """Return CEL for a period in seconds, a month as 30 days."""
    units = " : ".join(f"{period}.endsWith('{unit}') ? {seconds}" for unit, seconds in _UNITS.items())
    return f"({_number(period)} * ({units} : {_MONTH_S}))"


def _is_multiple(coarser: Operand, finer: Operand) -> RuleCondition:
    """Return the condition that each bucket of the coarser period consists of whole buckets of the finer one. A period
    of 0, which another rule refuses, meets it."""
    a, b = finer.cel, coarser.cel
    months = f"{b}.endsWith('mo') && {_number(b)} % {_number(a)} == 0"
    fixed = f"({b}.endsWith('mo') ? 86400 : {_seconds(b)}) % {_seconds(a)} == 0"

    def failures(names: Names) -> tuple[str, ...]:
        each = _period(coarser, names), _period(finer, names)
        return () if any(period.is_zero for period in each) or each[0].is_multiple_of(each[1]) else ("",)

    exact = RuleCondition(f"({a}.endsWith('mo') ? ({months}) : {fixed})", failures)
    return coarser.matches(_ZERO) | finer.matches(_ZERO) | exact


def _is_no_shorter(longer: Operand, shorter: Operand) -> RuleCondition:
    def failures(names: Names) -> tuple[str, ...]:
        return () if _period(longer, names).nominal_ms >= _period(shorter, names).nominal_ms else ("",)

    return RuleCondition(f"{_seconds(longer.cel)} >= {_seconds(shorter.cel)}", failures)


def _each_level(name: str, message: str) -> Rule:
    """Return the rule that a level's period is a multiple of that of each finer level, where both have it."""

    def is_multiple(finer: Operand, coarser: Operand) -> RuleCondition:
        a, b = finer.field(name), coarser.field(name)
        return (has(a) & has(b)) >> _is_multiple(b, a)

    return Rule("levels", pairs(_LEVELS, MAX_LEVELS, is_multiple, at=f".{name}"), message)


_SPEC: Final = (
    Rule("table", _TABLE.equals(OLD.field("table")), "table cannot change; write another MergeRollupTask instead"),
    Rule(
        "table",
        ~_TABLE.ends_with(OFFLINE_SUFFIX) & ~_TABLE.ends_with(REALTIME_SUFFIX),
        "_OFFLINE and _REALTIME are added by the cluster; leave them out",
    ),
    Rule(
        "levels",
        unique(_LEVELS, lambda level: level.field("name").lower(), at=".name"),
        "two levels have the same name, in whatever case; rename one",
    ),
    _each_level(
        "bucketTimePeriod",
        "levels go from the finest to the coarsest: each bucketTimePeriod is a whole multiple of those before it",
    ),
    _each_level(
        "roundBucketTimePeriod",
        "each roundBucketTimePeriod is a whole multiple of those of the finer levels before it",
    ),
    Rule(
        "levels",
        pairs(
            _LEVELS,
            MAX_LEVELS,
            lambda finer, level: _is_no_shorter(level.field("bufferTimePeriod"), finer.field("bufferTimePeriod")),
            at=".bufferTimePeriod",
        ),
        "the bufferTimePeriod of a level is not less than those of the finer levels before it",
    ),
    Rule(
        "aggregations",
        is_empty(SELF.field("aggregations")) | some(_LEVELS, "l", lambda level: _merge_type(level).equals("rollup")),
        "no level rolls up; write mergeType: rollup in one, or remove aggregations",
    ),
    Rule(
        "schedule",
        LOOKS_LIKE_A_SCHEDULE,
        'write a period such as 10m, or cron of five fields such as "0 3 * * *"',
    ),
)
_BUCKET: Final = ITEM.field("bucketTimePeriod")
_ROUNDING: Final = ITEM.field("roundBucketTimePeriod")
_LEVEL: Final = (
    Rule("bucketTimePeriod", ~_BUCKET.matches(_ZERO), "0 is no time at all; write a period such as 1d"),
    Rule(
        "roundBucketTimePeriod",
        has(_ROUNDING) >> ~_ROUNDING.matches(_ZERO),
        "0 is no time at all; write a period such as 1h",
    ),
    Rule(
        "roundBucketTimePeriod",
        has(_ROUNDING) >> _is_multiple(_BUCKET, _ROUNDING),
        "the bucket must be a whole multiple of roundBucketTimePeriod",
    ),
    Rule(
        "eraseDimensionValues",
        is_empty(ITEM.field("eraseDimensionValues")) | ~_merge_type(ITEM).equals("concat"),
        "concat compares no rows, so nothing is won by erasing; write mergeType: rollup or dedup",
    ),
)
RULES: Final[Rules] = {"spec": _SPEC, "spec.levels[]": _LEVEL}
"""Rules of a MergeRollupTask."""
