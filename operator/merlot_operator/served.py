"""Complete listings of each place: a namespace that is served, or None for all of them.

A namespace in which the operator has no rights is reported and skipped, since it may have been deleted with its Role;
the other namespaces go on. Listing it is retried, and it is served again once a listing succeeds. No decision is taken
in a namespace before every kind of object has been listed: an operator that sees no Tables would delete their servers.
"""

from __future__ import annotations

import asyncio
import logging

import kopf

from merlot.errors import MerlotError, NotFoundError
from merlot_operator import handlers
from merlot_operator.context import ReconcileContext
from merlot_operator.kube.client import ForbiddenError
from merlot_operator.kube.kinds import DECLARED, SELECTOR, TABLES, ResourceKind
from merlot_operator.metrics import SERVED
from merlot_operator.progress import Place
from merlot_operator.rights import listed

_LOG = logging.getLogger(__name__)

LOOK_S = 10.0
"""Seconds between two requests that check that the API server still answers about a place."""
LOOK_TIMEOUT_S = 10.0
FIRST_LOOK_S = 2.0
"""Seconds between two attempts until the first listing succeeds."""
RELIST_S = 600.0
"""Seconds between two complete listings, which find what a watch may have missed."""
FIRST_RELIST_S = 20.0
"""Seconds until the second listing, which comes early: deletions between the first listing and the start of the watches
are reported to nobody."""


async def follow(context: ReconcileContext, place: Place) -> None:
    """List a place again and again, until cancelled."""
    clock, progress = context.clock, context.progress
    relist_at, is_first = clock.monotonic(), True
    while True:
        is_known = place in progress.heard and place not in progress.left_out
        is_listing = not is_known or clock.monotonic() >= relist_at
        try:
            await (list_place(context, place) if is_listing else _look(context, place))
        except TimeoutError:
            # A request that is never answered does not count as an answer.
            _LOG.warning("API server does not answer place=%s waited_s=%.0f", place or "all", LOOK_TIMEOUT_S)
            continue
        except ForbiddenError as error:
            _leave_out(context, place, error)
            is_first = True
        except (MerlotError, kopf.LoginError) as error:
            _LOG.warning("objects cannot be listed place=%s cause=%s", place or "all", error)
        except Exception:  # noqa: BLE001 - the outermost loop: an answer that nobody foresaw must not end all the others
            _LOG.exception("objects cannot be listed place=%s", place or "all")
        else:
            if not is_known:
                _LOG.info("namespace is served place=%s", place or "all")
            SERVED.labels(place or "").set(1)
            if is_listing:
                relist_at = clock.monotonic() + (FIRST_RELIST_S if is_first else RELIST_S)
                is_first = False
        progress.tried[place] = clock.monotonic()
        await asyncio.sleep(LOOK_S if place in progress.heard else FIRST_LOOK_S)


async def list_place(context: ReconcileContext, place: Place) -> None:
    """Replace the stored objects by complete listings of all kinds, and wake everything."""
    kinds = listed(context.config)
    for kind in kinds:
        await _list_kind(context, kind, place)
    context.progress.heard[place] = context.clock.monotonic()
    context.progress.left_out.pop(place, None)
    for kind in kinds:
        bodies = context.store.all(kind) if place is None else context.store.of(kind, place)
        for body in list(bodies):
            context.store.tell(body)
            handlers.wake(context, kind, body)


async def _list_kind(context: ReconcileContext, kind: ResourceKind, place: Place) -> None:
    def heard() -> None:
        context.progress.tried[place] = context.clock.monotonic()

    try:
        listing = await context.kube.list_all(kind, place, "" if kind in DECLARED else SELECTOR, heard)
    except NotFoundError:
        if kind is TABLES:
            raise
        return  # The kind's definition is not installed: `late_kinds` adds the watch once it is.
    for gone in context.store.replace(kind, place, listing):
        handlers.wake(context, kind, gone)


async def _look(context: ReconcileContext, place: Place) -> None:
    async with asyncio.timeout(LOOK_TIMEOUT_S):
        await context.kube.probe(TABLES, place)
    context.progress.heard[place] = context.clock.monotonic()


def _leave_out(context: ReconcileContext, place: Place, error: ForbiddenError) -> None:
    if place not in context.progress.left_out:
        _LOG.error("namespace is left out until the rights are there place=%s cause=%s", place or "all", error)
    context.progress.left_out[place] = str(error)
    SERVED.labels(place or "").set(0)
    context.forget(place)
