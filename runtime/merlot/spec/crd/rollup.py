"""The MergeRollupTask's CustomResourceDefinition: the rules of `task_checks` as far as CEL can say them."""

from merlot.spec.crd.structural import Column, JsonSchema, Names, condition, definition, object_schema, rule
from merlot.spec.task_status import MergeRollupTaskStatus
from merlot.spec.tasks import MAX_LEVELS, MergeRollupTask

NAMES = Names(
    kind="MergeRollupTask", plural="mergerolluptasks", singular="mergerolluptask", short=("rollup", "rollups")
)
COLUMNS: tuple[Column, ...] = (
    ("Table", "string", ".spec.table", 0),
    ("Level", "string", ".status.level", 0),
    ("Watermark", "string", ".status.watermark", 0),
    ("Delay", "integer", ".status.delay", 0),
    ("State", "string", ".status.state", 0),
    ("Last-Run", "date", ".status.lastRun", 0),
    ("Ready", "string", condition("Ready"), 1),
    ("Reason", "string", condition("Ready", "reason"), 1),
    ("Progress", "string", ".status.progress", 1),
    ("Next-Run", "string", ".status.nextRun", 1),
    ("Schedule", "string", ".spec.schedule", 1),
    ("Last-Error", "string", ".status.lastError", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def rollup_crd() -> JsonSchema:
    """The CustomResourceDefinition of MergeRollupTask."""
    schema = object_schema(MergeRollupTask, MergeRollupTaskStatus)
    spec = schema["properties"]["spec"]
    spec["x-kubernetes-validations"] = _SPEC_RULES
    level = spec["properties"]["levels"]["items"]
    level["x-kubernetes-validations"] = _LEVEL_RULES
    level["properties"]["eraseDimensionValues"]["x-kubernetes-list-type"] = "set"
    levels = schema["properties"]["status"]["properties"]["levels"]
    levels["x-kubernetes-list-type"] = "atomic"
    schema["properties"]["status"]["properties"]["running"]["x-kubernetes-list-type"] = "atomic"
    return definition(NAMES, schema, COLUMNS)


def _number(period: str) -> str:
    """CEL: the number of a period."""
    return f"int({period}.endsWith('mo') ? {period}.replace('mo', '') : {period}.substring(0, size({period}) - 1))"


def _seconds(period: str) -> str:
    """CEL: a period in seconds, a month as 30 days."""
    unit = (
        f"({period}.endsWith('s') ? 1 : {period}.endsWith('m') ? 60 : {period}.endsWith('h') ? 3600 :"
        f" {period}.endsWith('d') ? 86400 : {period}.endsWith('w') ? 604800 : 2592000)"
    )
    return f"({_number(period)} * {unit})"


def _is_multiple(coarser: str, finer: str) -> str:
    """CEL: each bucket of the coarser period is made of whole buckets of the finer one; true if the finer is 0."""
    months = f"{coarser}.endsWith('mo') && {_number(coarser)} % {_number(finer)} == 0"
    fixed = f"({coarser}.endsWith('mo') ? 86400 : {_seconds(coarser)}) % {_seconds(finer)} == 0"
    return f"{finer}.matches('^0+[a-z]+$') || ({finer}.endsWith('mo') ? ({months}) : {fixed})"


def _each_level(text: str) -> str:
    """CEL: true of every level and the finer one before it, which are `b` and `a`."""
    later = ", ".join(map(str, range(1, MAX_LEVELS)))
    a, b = "self.levels[i - 1]", "self.levels[i]"
    return f"[{later}].all(i, i >= size(self.levels) || ({text.replace('@a', a).replace('@b', b)}))"


_SPEC_RULES = [
    rule("self.table == oldSelf.table", "table cannot change; write another MergeRollupTask instead", ".table"),
    rule(
        "!self.table.endsWith('_OFFLINE') && !self.table.endsWith('_REALTIME')",
        "_OFFLINE and _REALTIME are added by the cluster; leave them out",
        ".table",
    ),
    rule(
        "self.levels.all(a, self.levels.exists_one(b, a.name.lowerAscii() == b.name.lowerAscii()))",
        "two levels have the same name, in whatever case; rename one",
        ".levels",
    ),
    rule(
        _each_level(_is_multiple("@b.bucketTimePeriod", "@a.bucketTimePeriod")),
        "levels go from the finest to the coarsest: each bucketTimePeriod is a whole multiple of the one before it",
        ".levels",
    ),
    rule(
        _each_level(
            "!has(@a.roundBucketTimePeriod) || !has(@b.roundBucketTimePeriod) || "
            + _is_multiple("@b.roundBucketTimePeriod", "@a.roundBucketTimePeriod")
        ),
        "each roundBucketTimePeriod is a whole multiple of the one of the finer level before it",
        ".levels",
    ),
    rule(
        _each_level(f"{_seconds('@b.bufferTimePeriod')} >= {_seconds('@a.bufferTimePeriod')}"),
        "the bufferTimePeriod of a level is not less than that of the finer level before it",
        ".levels",
    ),
    rule(
        "!has(self.aggregations) || size(self.aggregations) == 0 || "
        "self.levels.exists(l, has(l.mergeType) && l.mergeType == 'rollup')",
        "no level rolls up; write mergeType: rollup in one, or remove aggregations",
        ".aggregations",
    ),
    rule(
        r"self.schedule.matches('^[0-9]*[1-9][0-9]*(s|m|h|d|w|mo)$') || self.schedule.startsWith('@')"
        r" || self.schedule.matches('^\\s*(\\S+\\s+){4}\\S+\\s*$')",
        'write a period such as 10m, or cron of five fields such as "0 3 * * *"',
        ".schedule",
    ),
]
_LEVEL_RULES = [
    rule(
        "!self.bucketTimePeriod.matches('^0+[a-z]+$')",
        "0 is no time at all; write a period such as 1d",
        ".bucketTimePeriod",
    ),
    rule(
        "!has(self.roundBucketTimePeriod) || !self.roundBucketTimePeriod.matches('^0+[a-z]+$')",
        "0 is no time at all; write a period such as 1h",
        ".roundBucketTimePeriod",
    ),
    rule(
        f"!has(self.roundBucketTimePeriod) || {_is_multiple('self.bucketTimePeriod', 'self.roundBucketTimePeriod')}",
        "the bucket must be a whole multiple of roundBucketTimePeriod",
        ".roundBucketTimePeriod",
    ),
    rule(
        "!has(self.eraseDimensionValues) || size(self.eraseDimensionValues) == 0 || "
        "(has(self.mergeType) && self.mergeType != 'concat')",
        "concat compares no rows, so nothing is won by erasing; write mergeType: rollup or dedup",
        ".eraseDimensionValues",
    ),
]
