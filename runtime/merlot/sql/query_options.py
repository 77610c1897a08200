"""Pinot's query options: their effect here, the values that they take, and warnings about unknown names.

Pinot ignores names it does not know, and clients send many. So such a name fails no query, but the answer warns of it.
A known option has its effect, or is refused if ignoring it would change the answer, or needs no effect; the reason
stands with its name below.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError
from merlot.tree.errors import UnsupportedSqlError

MAX_SHOWN: Final = 5
"""Most unknown names in warnings; the others are counted."""
MAX_SHOWN_CHARS: Final = 60


class QueryOptionError(InvalidInputError):
    """Raised for an option whose value makes no sense (Pinot's SQL_PARSING)."""

    code = QueryErrorCode.SQL_PARSING


@dataclass(frozen=True, slots=True)
class _Form:
    """Values that an option takes."""

    pattern: re.Pattern[str]
    words: str


_SWITCH: Final = _Form(re.compile("true|false", re.IGNORECASE), "true or false")
_WHOLE: Final = _Form(re.compile("-?[0-9]{1,19}"), "a whole number")
_COUNT: Final = _Form(re.compile("[1-9][0-9]{0,18}"), "a whole number above 0")
_DECIMAL: Final = _Form(re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?([eE][+-]?[0-9]{1,3})?"), "a number")
_OVERFLOW: Final = _Form(re.compile("throw|break", re.IGNORECASE), "THROW or BREAK")
_LOOKUP: Final = _Form(
    re.compile("divide_binary_search|scan|plain_binary_search", re.IGNORECASE),
    "DIVIDE_BINARY_SEARCH, SCAN or PLAIN_BINARY_SEARCH",
)
_TEXT: Final = _Form(re.compile(".*", re.DOTALL), "a text")

_DONE: Final = "done"
_EXACT: Final = "lets Pinot answer less than everything; answers here are whole, or say what they lack"
_UPSERT: Final = "every query sees one consistent cut of a partition"
_JOIN: Final = "memory, disk and time bound joins and windows, and past them a query fails"
_ENGINE: Final = "chooses how Pinot's engines work; the answer is the same"
_INDEX: Final = "tunes how Pinot reads; the answer is the same"
_ROUTE: Final = "chooses among replicas, which answer the same"
_SHOWN: Final = "changes what Pinot logs, traces or explains, never rows"
_NOTHING: Final = "belongs to what no query here can ask for"

NULL_HANDLING: Final = "enableNullHandling"

_FAMILIES: Final[tuple[tuple[str, _Form, str], ...]] = (
    (_DONE, _WHOLE, "timeoutMs"),
    (_DONE, _COUNT, "maxServerResponseSizeBytes maxQueryResponseSizeBytes"),
    (_DONE, _SWITCH, "enableNullHandling skipSegmentPruning dropResults useStarTree"),
    (_DONE, _SWITCH, "skipUpsert skipUpsertDelete"),
    (_DONE, _SWITCH, "getCursor autoRewriteAggregationType filteredAggregationsSkipEmptyGroups"),
    (_DONE, _SWITCH, "enableMultiClusterRouting jsonIndexDistinctSkipMissingPath"),
    (_DONE, _SWITCH, "useMultistageEngine"),
    (_DONE, _TEXT, "clientQueryId sampler database"),
    (_EXACT, _WHOLE, "minSegmentGroupTrimSize minServerGroupTrimSize minBrokerGroupTrimSize mseMinGroupTrimSize"),
    (_EXACT, _WHOLE, "groupTrimThreshold numGroupsLimit numGroupsWarningLimit maxRowsInDistinct"),
    (_EXACT, _WHOLE, "maxRowsWithoutChangeInDistinct maxExecutionTimeMsInDistinct multiStageLeafLimit"),
    (_EXACT, _WHOLE, "liteModeLeafStageLimit liteModeLeafStageFanOutAdjustedLimit"),
    (_EXACT, _SWITCH, "accurateGroupByWithoutOrderBy errorOnNumGroupsLimit useLiteMode enablePartitionedAggregation"),
    (_EXACT, _SWITCH, "serverReturnFinalResult serverReturnFinalResultKeyUnpartitioned"),
    (_EXACT, _SWITCH, "ignoreMissingSegments skipUnavailableServers"),
    (_UPSERT, _SWITCH, "skipUpsertView"),
    (_UPSERT, _WHOLE, "upsertViewFreshnessMs"),
    (_JOIN, _WHOLE, "maxRowsInJoin maxRowsInWindow"),
    (_JOIN, _OVERFLOW, "joinOverflowMode windowOverflowMode"),
    (_ENGINE, _SWITCH, "usePhysicalOptimizer useSpools inferPartitionHint streamStats runInBroker"),
    (_ENGINE, _SWITCH, "inferInvalidSegmentPartition inferRealtimeSegmentPartition useBrokerPruning"),
    (_ENGINE, _SWITCH, "useLeafServerForIntermediateStage unnestColumnPruning useMSEToFillEmptyResponseSchema"),
    (_ENGINE, _WHOLE, "extraPassiveTimeoutMs stageParallelism maxStreamingPendingBlocks sortExchangeCopyThreshold"),
    (_ENGINE, _WHOLE, "streamingGroupByFlushThreshold"),
    (_ENGINE, _TEXT, "skipPlannerRules usePlannerRules"),
    (_INDEX, _SWITCH, "scanStarTreeNodes useScanReorderOpt useIndexBasedDistinctOperator"),
    (_INDEX, _SWITCH, "allowReverseOrder inPredicatePreSorted optimizeMaxInitialResultHolderCapacity"),
    (_INDEX, _SWITCH, "enableMaterializedViewRewrite"),
    (_INDEX, _TEXT, "skipIndexes AndScanReordering"),
    (_INDEX, _LOOKUP, "inPredicateLookupAlgorithm"),
    (_INDEX, _WHOLE, "maxExecutionThreads inPredicatePruningThreshold regexDictSizeThreshold"),
    (_INDEX, _WHOLE, "maxInitialResultHolderCapacity mseMaxInitialResultHolderCapacity minInitialIndexedTableCapacity"),
    (_INDEX, _WHOLE, "sortAggregateLimitThreshold sortAggregateSingleThreadedNumSegmentsThreshold"),
    (_INDEX, _WHOLE, "numThreadsExtractFinalResult chunkSizeExtractFinalResult"),
    (_INDEX, _DECIMAL, "invertedIndexDistinctCostRatio"),
    (_ROUTE, _WHOLE, "numReplicaGroupsToQuery"),
    (_ROUTE, _SWITCH, "useFixedReplica isSecondaryWorkload"),
    (_ROUTE, _TEXT, "orderedPreferredPools routingOptions workloadName"),
    (_SHOWN, _SWITCH, "trace explainPlanVerbose explainAskingServers traceRuleProductions collectGCStats"),
    (_SHOWN, _TEXT, "applicationName queryHash"),
    (_SHOWN, _TEXT, "groupByMode responseFormat preserveType"),
    (_NOTHING, _WHOLE, "cursorNumRows vectorNprobe vectorMaxCandidates vectorEfSearch"),
    (_NOTHING, _SWITCH, "vectorExactRerank vectorUseRelativeDistance vectorUseBoundedQueue excludeVirtualColumns"),
    (_NOTHING, _DECIMAL, "vectorDistanceThreshold"),
)
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "getCursor": ("false", "ask for a cursor in the URL, ?getCursor=true"),
    "autoRewriteAggregationType": ("false", "write MINLONG, MAXLONG or SUMLONG"),
    "filteredAggregationsSkipEmptyGroups": ("false", "write the filters into WHERE"),
    "enableMultiClusterRouting": ("false", "a broker asks its own cluster"),
    "jsonIndexDistinctSkipMissingPath": ("false", "write the condition into WHERE"),
    "sampler": ("", "every row is read"),
    "database": ("default", "there is one database"),
}
"""Value that changes no answer, and the advice for any other value."""


@dataclass(frozen=True, slots=True)
class QueryOption:
    """An option of Pinot, or of Merlot alone."""

    name: str
    form: _Form
    reason: str
    """Reason why the option needs no effect; `done` if it has one."""


KNOWN: Final[Mapping[str, QueryOption]] = {
    name.lower(): QueryOption(name, form, reason) for reason, form, names in _FAMILIES for name in names.split()
}
"""Options by name in lower case: case does not matter."""


def with_nulls(options: Mapping[str, str], *, null_handling: bool) -> Mapping[str, str]:
    """Return a request's options; if they do not say, `null_handling` of the tables applies."""
    return {NULL_HANDLING: "true", **options} if null_handling else options


def check(options: Iterable[tuple[str, str]]) -> None:
    """Raise QueryOptionError for a value that an option does not take, UnsupportedSqlError for an effect that is
    missing here."""
    for name, value in options:
        option = KNOWN.get(name.lower())
        if option is None:
            continue
        if option.form.pattern.fullmatch(value) is None:
            raise QueryOptionError(f"{name} must be {option.form.words} got={_shown(value)!r}")
        harmless, instead = _REFUSED.get(option.name, (value, ""))
        if value.lower() != harmless.lower():
            raise UnsupportedSqlError(f"query option {option.name}={_shown(value)}: {instead}")


def warnings(options: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return a line for each unknown option, with the nearest known name; the last line counts the rest."""
    unknown = [name for name, _ in options if name.lower() not in KNOWN]
    lines = [_warning(name) for name in unknown[:MAX_SHOWN]]
    if len(unknown) > MAX_SHOWN:
        lines.append(f"unknown query options ignored number={len(unknown) - MAX_SHOWN}")
    return tuple(lines)


def _warning(name: str) -> str:
    near = difflib.get_close_matches(name.lower()[:MAX_SHOWN_CHARS], KNOWN, n=1)
    hint = f"; did you mean {KNOWN[near[0]].name}?" if near else ""
    return f"unknown query option ignored name={_shown(name)}{hint}"


def _shown(text: str) -> str:
    """Return a short text in one line."""
    line = " ".join(text[:MAX_SHOWN_CHARS].split())
    return line if len(text) <= MAX_SHOWN_CHARS else f"{line}…"
