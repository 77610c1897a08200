"""Ask servers in parallel, ask other replicas for lost segments, and report the segments that stay lost.

If a server cannot be reached, is shutting down or is full, other replicas are asked for its segments, within the
query's deadline; likewise for a single segment that a server lacks. Segments that no server answered for become
exceptions, and then fewer servers have responded than were queried. An error about the query itself (a limit, the
server's own timeout) ends the query, as do answers that take more memory together than a query may hold. Cancelling
`gather` cancels every call under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from merlot.broker.query_errors import RETRIABLE_SERVER_CODES, QueryException, named
from merlot.broker.routing.health import CallOutcome
from merlot.broker.routing.routes import RoutingSnapshot, ServerRoute, reroute
from merlot.broker.scatter_gather.channels import Channels
from merlot.cluster.segments.boundary import TimeSplit
from merlot.codes import QueryErrorCode
from merlot.errors import CorruptionError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.kernels import compile_time
from merlot.query.answer.partial import Partial
from merlot.vectors import account
from merlot.vectors.account import SMALL_BYTES, Account, MemoryShortError
from merlot.vectors.errors import LimitExceededError
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

GRACE_S = 0.05
"""Time that the broker waits longer than the server, so that a slow query ends with the server's own message."""
NAMES_SHOWN = 10

Outcome = ServerResponse | UnavailableError | CorruptionError
"""Result of a call. An answer that cannot be read counts as none: another replica may do better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterRequest:
    """A query, and the calls to make for it. `deadline` is in the event loop's time."""

    request_id: str
    table: TableName
    query: bytes
    where: bytes = b""
    boundary_wheres: Mapping[TimeSplit, bytes] = field(default_factory=dict)
    """Filters that include the time boundary, for segments that reach beyond it."""
    snapshot: RoutingSnapshot
    routes: Sequence[ServerRoute]
    deadline: float
    unavailable: Sequence[str] | None = None
    """Keys that the query needs and no server holds; None: all such keys of the snapshot."""
    schema: pa.Schema
    """Columns of an answer."""


@dataclass(slots=True)
class Gathered:
    """Answers of the servers. `lost` are keys that no server answered for.

    The result is complete if nothing is lost and nothing `failed`.
    """

    partials: list[Partial] = field(default_factory=list)
    responded: set[InstanceId] = field(default_factory=set)
    silent: set[InstanceId] = field(default_factory=set)
    late: set[InstanceId] = field(default_factory=set)
    absent: set[InstanceId] = field(default_factory=set)
    """Servers that would have been asked if they were live."""
    lost: list[str] = field(default_factory=list)
    failed: QueryException | None = None
    num_retries: int = 0

    @property
    def num_servers_queried(self) -> int:
        """Servers queried: at least one, and more than have responded if anything is lost."""
        if not self.lost:
            return self.num_servers_responded
        return max(len(self.responded | self.silent | self.late | self.absent), self.num_servers_responded + 1)

    @property
    def num_servers_responded(self) -> int:
        """Servers whose answers are in the result. An answer that needs no server counts the broker itself."""
        return len(self.responded) if self.responded or self.lost else 1

    def exceptions(self) -> tuple[QueryException, ...]:
        """Return the reasons why the answer is incomplete; empty if it is complete."""
        if self.failed is not None:
            return (self.failed,)
        exceptions = []
        if self.late:
            exceptions.append(named(QueryErrorCode.BROKER_TIMEOUT, f"query timed out waiting for {_listed(self.late)}"))
        gone = (self.silent | self.absent) - self.responded
        if gone and self.lost:
            text = f"{len(gone)} servers {_listed(gone)} not responded"
            exceptions.append(named(QueryErrorCode.SERVER_NOT_RESPONDING, text))
        if self.lost and not self.late:
            text = f"{len(self.lost)} segments unavailable: {_listed(self.lost)}"
            exceptions.append(named(QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE, text))
        return tuple(exceptions)


ReportCall = Callable[[InstanceId, CallOutcome], None]
"""Function that is called with the outcome of each call."""


async def gather(request: ScatterRequest, channels: Channels, report_call: ReportCall) -> Gathered:
    """Ask, retry and collect until every segment is answered or lost, or the time is over."""
    return await _Scatter(request, channels, report_call).run()


class _Scatter:
    def __init__(self, request: ScatterRequest, channels: Channels, report_call: ReportCall) -> None:
        self._request = request
        self._channels = channels
        self._report_call = report_call
        self._counted_s = compile_time.seconds()
        self._pending: dict[asyncio.Task[Outcome], ServerRoute] = {}
        self._lacking: set[tuple[InstanceId, str]] = set()
        unavailable = request.snapshot.unavailable if request.unavailable is None else request.unavailable
        absent = request.snapshot.absent if unavailable else ()
        self._gathered = Gathered(lost=list(unavailable), absent=set(absent))
        self._account = Account(account.TOTAL.query_bytes, account.TOTAL)

    async def run(self) -> Gathered:
        routes = self._request.routes
        try:
            if len(routes) == 1:
                # Most point queries have one route, which needs no task and no wait set.
                routes = self._settle(routes[0], await self._ask(routes[0]))
            self._send(routes)
            while self._pending and self._gathered.failed is None:
                await self._await_some()
        finally:
            for task in self._pending:
                task.cancel()
            account.TOTAL.close(self._account)
        return self._gathered

    def _send(self, routes: Sequence[ServerRoute]) -> None:
        for route in routes:
            self._pending[asyncio.create_task(self._ask(route))] = route

    async def _await_some(self) -> None:
        done, _ = await asyncio.wait(self._pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            self._send(self._settle(self._pending.pop(task), task.result()))

    async def _ask(self, route: ServerRoute) -> Outcome:
        remaining = self._remaining()
        request = ServerRequest(
            request_id=self._request.request_id,
            table=self._request.table,
            query=self._request.query,
            where=self._request.boundary_wheres.get(route.time_split, self._request.where),
            segments=route.segments,
            timeout_ms=max(1, int(remaining * 1000)),
        )
        try:
            answer = await self._channels.of(route.instance).execute(request, max(0.0, remaining) + GRACE_S)
            return self._fitting(answer, route)
        except (UnavailableError, CorruptionError) as error:
            _LOG.debug("server not reached instance=%s cause=%s", route.instance, error)
            return error

    def _fitting(self, answer: ServerResponse, route: ServerRoute) -> ServerResponse:
        """Return the answer in the columns that were asked for. Raise CorruptionError if it answers another request."""
        if answer.missing and not set(route.segments).issuperset(answer.missing):
            raise CorruptionError("server lacks segments that it was not asked for")
        partial, schema = answer.partial, self._request.schema
        if partial is None or partial.content.schema.equals(schema):
            return answer
        try:  # a server of another version may have another width of the same type
            return replace(answer, partial=replace(partial, content=partial.data.cast(schema)))
        except (pa.ArrowException, ValueError) as error:
            raise CorruptionError(f"answer has other columns reason={error}") from error

    def _settle(self, route: ServerRoute, outcome: Outcome) -> Sequence[ServerRoute]:
        """Take in an outcome, and return the routes to ask next."""
        if not isinstance(outcome, ServerResponse):
            return self._settle_failure(route)
        self._report_call(route.instance, CallOutcome.ANSWERED)
        if outcome.error is not None:
            code, message = outcome.error
            if code in RETRIABLE_SERVER_CODES:
                return self._retry(route, route.segments)
            self._gathered.responded.add(route.instance)
            self._gathered.failed = named(code, message)
            return ()
        if outcome.partial is None:
            # Even if it names missing segments: it answered for none.
            return self._retry(route, route.segments)
        if outcome.missing and self._is_torn(outcome.missing):
            # The rest of a partition must come from the server that has the missing part: this answer does not count.
            self._lacking.update((route.instance, key) for key in outcome.missing)
            return self._retry(route, route.segments, lacks_all=False)
        self._gathered.responded.add(route.instance)
        self._keep(outcome.partial)
        return self._retry(route, outcome.missing) if outcome.missing else ()

    def _keep(self, partial: Partial) -> None:
        """Keep an answer. Fail if all answers take more memory than the query may hold."""
        try:
            if partial.nbytes > SMALL_BYTES:
                self._account.add("answers of servers", partial.nbytes)
        except (LimitExceededError, MemoryShortError) as error:
            self._gathered.failed = QueryException.of(error)
            self._gathered.partials.clear()
            return
        self._gathered.partials.append(partial)

    def _settle_failure(self, route: ServerRoute) -> Sequence[ServerRoute]:
        if self._remaining() <= 0:
            self._report_call(route.instance, CallOutcome.LATE)
            self._gathered.late.add(route.instance)
            self._gathered.lost.extend(route.segments)
            return ()
        self._report_call(route.instance, CallOutcome.UNREACHED)
        self._gathered.silent.add(route.instance)
        return self._retry(route, route.segments)

    def _is_torn(self, missing: Sequence[str]) -> bool:
        """Return True if `missing` has segments of a partition that one server has to answer for as a whole."""
        return any(self._request.snapshot.by_key[key].group is not None for key in missing)

    def _retry(self, route: ServerRoute, keys: Sequence[str], *, lacks_all: bool = True) -> Sequence[ServerRoute]:
        if lacks_all:
            self._lacking.update((route.instance, key) for key in keys)
        if self._remaining() <= 0:
            self._gathered.late.add(route.instance)
            self._gathered.lost.extend(keys)
            return ()
        rerouted = reroute(self._request.snapshot, keys, self._gathered.silent, self._lacking)
        self._gathered.lost.extend(rerouted.lost)
        self._gathered.num_retries += len(rerouted.routes)
        return rerouted.routes

    def _remaining(self) -> float:
        spared_s = compile_time.seconds() - self._counted_s
        return self._request.deadline + spared_s - asyncio.get_running_loop().time()


def _listed(names: Sequence[str] | set[InstanceId]) -> str:
    shown = sorted(names)[:NAMES_SHOWN]
    return f"[{', '.join(shown)}{', …' if len(names) > len(shown) else ''}]"
