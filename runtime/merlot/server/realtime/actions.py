"""Run the blocking actions of a replica beside its thread: writes of shared state, and the making of files.

An action that the replica no longer wants when its turn comes is skipped. Every other action gets a result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from merlot import telemetry
from merlot.cluster.consuming.commits import propose_end, replace_sealer
from merlot.cluster.consuming.positions import Positions, publish_position, read_positions
from merlot.cluster.consuming.steps import (
    Action,
    Build,
    Commit,
    Event,
    Propose,
    Publish,
    TakeOver,
    Upload,
)
from merlot.cluster.segments.view import TableView
from merlot.errors import MerlotError, UnavailableError
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.realtime.partition_deps import PartitionDeps
from merlot.server.realtime.sealing import Sealing

_LOG = logging.getLogger(__name__)

Blocking = Publish | Propose | TakeOver | Build | Upload | Commit
Outcome = Event | TableView | Positions


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Result of an action; an action without an outcome has failed."""

    action: Blocking
    outcome: Outcome | None
    error: str = ""


class ActionRunner:
    """Runner of one partition's actions."""

    def __init__(
        self,
        deps: PartitionDeps,
        sealing: Sealing,
        is_wanted: Callable[[Action], bool],
        answer: Callable[[ActionResult], None],
    ) -> None:
        self._deps = deps
        self._sealing = sealing
        self._is_wanted = is_wanted
        self._answer = answer

    def begin(self, action: Blocking, rows: ConsumingSegment | None) -> None:
        """Run the action on another thread. `rows` are those of the segment that is to be sealed."""
        is_write = isinstance(action, Publish | Propose | TakeOver | Commit)
        executor = self._deps.writes if is_write else self._deps.seals
        executor.submit(self._run, action, rows)

    def _run(self, action: Blocking, rows: ConsumingSegment | None) -> None:
        if not self._is_wanted(action):
            return
        try:
            self._answer(ActionResult(action, self._carry_out(action, rows)))
        except MerlotError as error:
            step, table = type(action).__name__.lower(), self._deps.table
            _LOG.warning("step of a segment failed, tried again table=%s step=%s cause=%s", table, step, error)
            self._failed(action, error, str(error))
        except Exception as error:  # noqa: BLE001 - the outermost of its thread
            _LOG.exception("step of a segment failed by a bug table=%s action=%s", self._deps.table, action)
            self._failed(action, error, f"internal error {type(error).__name__}")

    def _failed(self, action: Blocking, error: Exception, text: str) -> None:
        telemetry.STREAM_FAILURES.labels(self._deps.table, type(error).__name__).inc()
        self._answer(ActionResult(action, None, text))

    def _carry_out(self, action: Blocking, rows: ConsumingSegment | None) -> Outcome:
        deps = self._deps
        match action:
            case Publish(position=position):
                publish_position(deps.metastore, deps.table, position)
                positions = read_positions(deps.metastore, deps.table)
                if positions.get(position.segment, {}).get(position.instance) != position:
                    # A cleaner whose view was from before the segment began has deleted it.
                    raise UnavailableError(f"position was deleted, publish it again segment={position.segment}")
                return positions
            case Propose(end=end):
                view = propose_end(deps.metastore, deps.table, end)
                _LOG.info("segment ends table=%s segment=%s offset=%d", deps.table, end.segment, end.offset)
                return view
            case TakeOver(segment=segment, old=old):
                me, now_ms = deps.instance, deps.clock.now_ms()
                return replace_sealer(deps.metastore, deps.table, segment, old=old, new=me, now_ms=now_ms)
            case Build(end_offset=end_offset):
                assert rows is not None
                return self._sealing.build(action, rows, rows.docs_before(end_offset))
            case Upload():
                return self._sealing.upload(action)
            case Commit():
                return self._sealing.commit(action)
            case _:
                assert_never(action)
