"""Writes: server-side apply of what differs, deletion of what nobody wants any more.

One object that cannot be written never keeps the others from being written: problems are collected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from merlot.errors import InvalidInputError, MerlotError, NotFoundError
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Kube
from merlot_operator.kube.compare import differences, holds
from merlot_operator.kube.kinds import (
    DESIRED,
    FIELD_MANAGER,
    MANAGED_BY,
    Object,
    annotations_of,
    digest,
    is_deleting,
    kind_of,
    labels_of,
    name_of,
    namespace_of,
)

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Written:
    """What a pass did."""

    applied: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    problems: dict[str, MerlotError] = field(default_factory=dict)
    """By object, why it could not be written."""

    def check(self) -> None:
        """Raise the first problem, if there is one."""
        for error in self.problems.values():
            raise error


class ForeignObjectError(InvalidInputError):
    """An object of that name is somebody else's."""


def stamped(body: Mapping[str, Any]) -> dict[str, Any]:
    """The object as it is applied: with its own hash."""
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DESIRED: digest(body)}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


class Writer:
    """Applies and deletes, and keeps the store current, so that the next pass sees its own writes."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._untaken: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        """By object: the hash of what was applied, and what of it the API server did not take over."""

    async def apply_all(self, bodies: Iterable[Mapping[str, Any]]) -> Written:
        """Apply what differs, in order."""
        written = Written()
        for body in bodies:
            label = title(body)
            try:
                if await self.apply(body):
                    written.applied.append(label)
            except MerlotError as error:
                _LOG.warning("object cannot be written object=%s cause=%s", label, error)
                written.problems[label] = error
        return written

    async def apply(self, body: Mapping[str, Any]) -> bool:
        """Apply one object unless it is as it should be; returns whether it was written."""
        wanted = stamped(body)
        live = self._store.get(kind_of(body), namespace_of(body), name_of(body))
        if live is not None and (is_deleting(live) or holds(live, wanted) or self._is_as_taken(live, wanted)):
            return False
        if live is None:
            await self._refuse_foreign(body)
        elif changes_fixed_field(live, wanted):
            await self.delete(live)
        taken = await self._kube.apply(wanted)
        self._store.keep(taken)
        _LOG.info("applied object=%s namespace=%s", title(body), namespace_of(body))
        self._note_untaken(taken, wanted)
        return True

    def _is_as_taken(self, live: Object, wanted: Mapping[str, Any]) -> bool:
        """Whether it differs in nothing but what the API server did not take over from this very object."""
        known = self._untaken.get(_key(wanted))
        return known is not None and known == (_hash(wanted), differences(live, wanted))

    def _note_untaken(self, taken: Object, wanted: Mapping[str, Any]) -> None:
        """An empty text in what a user lays over a pod is dropped, an admission plugin may change what it likes: to
        apply that again and again would be for ever."""
        untaken = differences(taken, wanted)
        if untaken:
            self._untaken[_key(wanted)] = (_hash(wanted), untaken)
            _LOG.warning("fields are not as applied object=%s fields=%s", title(wanted), ", ".join(untaken))
        else:
            self._untaken.pop(_key(wanted), None)

    async def delete_all(self, bodies: Iterable[Object]) -> Written:
        """Delete objects; those on their way already are left alone."""
        written = Written()
        for body in bodies:
            if is_deleting(body):
                continue
            try:
                await self.delete(body)
                written.deleted.append(title(body))
            except MerlotError as error:
                _LOG.warning("object cannot be deleted object=%s cause=%s", title(body), error)
                written.problems[title(body)] = error
        return written

    async def delete(self, body: Object, *, propagation: str = "Background") -> None:
        """Delete one object."""
        await self._kube.delete(body, propagation=propagation)
        _LOG.info("deleted object=%s namespace=%s", title(body), namespace_of(body))

    async def _refuse_foreign(self, body: Mapping[str, Any]) -> None:
        """Objects without our label are not watched: one of the same name would be taken over silently."""
        try:
            live = await self._kube.get(kind_of(body), namespace_of(body), name_of(body))
        except NotFoundError:
            return
        if labels_of(live).get(MANAGED_BY) != FIELD_MANAGER and not _was_ours(live):
            raise ForeignObjectError(f"{title(body)} exists and is not the operator's; rename or delete it")


def changes_fixed_field(live: Object, wanted: Mapping[str, Any]) -> bool:
    """Whether the object must be made anew: the API server lets nobody change to which role a binding refers."""
    return "roleRef" in wanted and not holds(live.get("roleRef"), wanted["roleRef"])


def _was_ours(live: Object) -> bool:
    """Somebody took our label away."""
    return any(entry.get("manager") == FIELD_MANAGER for entry in live["metadata"].get("managedFields", ()))


def _key(body: Object) -> tuple[str, str]:
    return namespace_of(body), title(body)


def _hash(stamped_body: Mapping[str, Any]) -> str:
    return str(annotations_of(stamped_body)[DESIRED])


def title(body: Object) -> str:
    """Kind and name."""
    return f"{body['kind']}/{name_of(body)}"
