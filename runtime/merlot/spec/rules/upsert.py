"""Rules of upsert settings, both in an UpsertConfig and in `spec.upsert.config` of a Table."""

from typing import Final

from merlot.spec.rules.language import SELF, RuleCondition, any_of, has, is_empty, some, unique
from merlot.spec.rules.rule import Rule, Rules
from merlot.spec.upserting import UpsertMode

_MODE: Final = SELF.field("mode", allowed=tuple(UpsertMode))
_IS_FIRST_ROW: Final = _MODE.equals("DEDUP")
_IS_MERGED: Final = _MODE.equals("PARTIAL")
_TTL: Final = SELF.field("primaryKeyTtl")
_DELETED_TTL: Final = SELF.field("deletedKeysTtl")
_DELETE_COLUMN: Final = SELF.field("deleteRecordColumn")
_COMPARED: Final = SELF.field("comparisonColumns")
_STRATEGIES: Final = SELF.field("partialUpsertStrategies")
_DROPS: Final = SELF.field("dropOutOfOrderRecord", default=False).is_true()
_MARK: Final = SELF.field("outOfOrderRecordColumn")
_SKEW: Final = SELF.field("maxFutureSkew")
_COMPACTION: Final = SELF.field("compaction")
_IS_KEPT: Final = SELF.field("snapshot", default="DEFAULT").equals("ENABLE")
_STORE: Final = SELF.field("snapshotStore", default="DEEP_STORE")
_PRUNING: Final = SELF.field("pruning", default="COMMIT", allowed=("COMMIT", "SCAN", "ROTATION"))
_HAS_TTL: Final = any_of([has(SELF.field(name)) for name in ("primaryKeyTtl", "ttl", "TtlValue")])
_DECIDES_BY_AGE: Final = _HAS_TTL | has(_DELETED_TTL)
_ONE_COLUMN: Final = ~has(_COMPARED) | _COMPARED.size().at_most(1)
_OTHER_SKIP: Final = SELF.field("isSkipLateEvents")
_ZERO: Final = "^0+[a-z]?$"


def _exclude(first: str, second: str) -> RuleCondition:
    return ~(has(SELF.field(first)) & has(SELF.field(second)))


_OF_TTL: Final = (
    Rule(
        "primaryKeyTtl",
        has(_TTL) >> ~_TTL.matches(_ZERO),
        "a TTL is more than 0; remove it to keep keys for ever",
    ),
    Rule(
        "deletedKeysTtl",
        has(_DELETED_TTL) >> ~_DELETED_TTL.matches(_ZERO),
        "a TTL is more than 0; remove it to remember deleted keys for ever",
    ),
    Rule(
        "TtlUnit",
        has(SELF.field("TtlUnit")).same_as(has(SELF.field("TtlValue"))),
        "TtlUnit and TtlValue go together; or write primaryKeyTtl, such as 1d",
    ),
    Rule(
        "primaryKeyTtl",
        _exclude("primaryKeyTtl", "ttl") & _exclude("primaryKeyTtl", "TtlValue") & _exclude("ttl", "TtlValue"),
        "the TTL is said in one way: primaryKeyTtl, or ttl, or TtlUnit with TtlValue",
    ),
    Rule("primaryKeyTtl", _HAS_TTL >> _ONE_COLUMN, "a TTL needs one comparison column, a number or a time"),
    Rule("deletedKeysTtl", has(_DELETED_TTL) >> _ONE_COLUMN, "a TTL needs one comparison column, a number or a time"),
    Rule(
        "deletedKeysTtl",
        has(_DELETED_TTL) >> has(_DELETE_COLUMN),
        "deletedKeysTtl needs deleteRecordColumn, which tells what is deleted",
    ),
    *(
        Rule(name, is_asked >> _HAS_TTL, f"{name} needs primaryKeyTtl, which tells what is late")
        for name, is_asked in (
            ("skipLateEvents", SELF.field("skipLateEvents", default=False).is_true()),
            ("isSkipLateEvents", has(_OTHER_SKIP) & _OTHER_SKIP.is_true()),
        )
    ),
    Rule("pruning", ~_PRUNING.equals("COMMIT") >> _HAS_TTL, "pruning needs primaryKeyTtl; without it no key expires"),
    Rule(
        "pruningInterval",
        has(SELF.field("pruningInterval")) >> _PRUNING.equals("SCAN"),
        "only pruning: SCAN has an interval; remove it",
    ),
)
_OF_SKEW: Final = (
    Rule("maxFutureSkew", has(_SKEW) >> _HAS_TTL, "maxFutureSkew needs primaryKeyTtl; without it no key expires"),
    Rule(
        "maxFutureSkew",
        has(_SKEW).same_as(has(SELF.field("messageTimeColumn"))),
        "maxFutureSkew and messageTimeColumn go together: one says how far ahead, the other of what",
    ),
    Rule(
        "maxFutureSkew",
        has(_SKEW) >> ~_SKEW.matches("^([0-9]+|0[a-z])$"),
        "write a duration such as 10m: maxFutureSkew is compared with the times of messages",
    ),
    Rule(
        "maxFutureSkew",
        has(_SKEW) >> ~_DROPS,
        "maxFutureSkew does not go with dropOutOfOrderRecord: rows that are dropped could make keys expire",
    ),
)
_OF_MODE: Final = (
    Rule(
        "partialUpsertStrategies",
        _IS_MERGED | is_empty(_STRATEGIES),
        "only mode: PARTIAL merges columns; write it, or remove partialUpsertStrategies",
    ),
    Rule(
        "defaultPartialUpsertStrategy",
        _IS_MERGED | SELF.field("defaultPartialUpsertStrategy", default="OVERWRITE").equals("OVERWRITE"),
        "only mode: PARTIAL merges columns; write it, or remove defaultPartialUpsertStrategy",
    ),
    *(
        Rule(
            name,
            _IS_FIRST_ROW >> ~is_asked,
            "mode DEDUP keeps the first row of a key, whatever comes; remove it",
        )
        for name, is_asked in (
            ("deleteRecordColumn", has(_DELETE_COLUMN)),
            ("deletedKeysTtl", has(_DELETED_TTL)),
            ("outOfOrderRecordColumn", has(_MARK)),
            ("dropOutOfOrderRecord", _DROPS),
        )
    ),
    Rule(
        "comparisonColumns",
        _IS_FIRST_ROW >> _ONE_COLUMN,
        "mode DEDUP compares nothing: write the one column that keys expire by",
    ),
    Rule(
        "snapshot",
        _IS_FIRST_ROW >> ~_IS_KEPT,
        "mode DEDUP has no snapshots: every row that is stored is valid, and a restart reads the keys; remove it",
    ),
    Rule("compaction", _IS_FIRST_ROW >> ~has(_COMPACTION), "mode DEDUP stores no row that is replaced; remove it"),
)
_OF_ORDER: Final = (
    Rule(
        "outOfOrderRecordColumn",
        ~(_DROPS & has(_MARK)),
        "rows out of order are dropped, so none is left to be marked; remove one of the two",
    ),
    Rule("comparisonColumns", has(_COMPARED) >> unique(_COMPARED), "a column is named twice; keep one"),
    Rule(
        "partialUpsertStrategies",
        (has(_COMPARED) & has(_STRATEGIES)) >> ~some(_COMPARED, "c", lambda c: c.is_member_of(_STRATEGIES)),
        "a comparison column is never merged; take it out of partialUpsertStrategies",
    ),
)
_OF_STORAGE: Final = (
    Rule(
        "snapshotStore",
        ~_STORE.equals("SEGMENT"),
        "SEGMENT does not exist: sealed files are not written to again; write DEEP_STORE or LOCAL",
    ),
    Rule(
        "snapshotStore",
        _IS_KEPT | _STORE.equals("DEEP_STORE"),
        "snapshotStore needs snapshot: ENABLE, or nothing is kept; remove it",
    ),
    Rule(
        "compaction",
        (has(_COMPACTION) & _DECIDES_BY_AGE) >> (_IS_KEPT & _STORE.equals("DEEP_STORE")),
        "compaction with a TTL needs snapshot: ENABLE, in the DEEP_STORE: it removes rows that decide what expired",
    ),
    Rule(
        "compaction.merge",
        has(SELF.field("compaction.merge")) >> ~_DECIDES_BY_AGE,
        "compaction.merge does not go with a TTL in this version: segments stay apart",
    ),
    Rule(
        "compaction",
        has(_SKEW) >> ~has(_COMPACTION),
        "compaction does not go with maxFutureSkew: rows that it removes tell how far time has come",
    ),
)
SETTINGS: Final = (*_OF_TTL, *_OF_SKEW, *_OF_MODE, *_OF_ORDER, *_OF_STORAGE)
"""Rules of the settings, wherever they are written."""
RULES: Final[Rules] = {"spec": SETTINGS}
"""Rules of an UpsertConfig."""
