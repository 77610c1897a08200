"""Write to the API server: apply objects that differ (server-side apply), and delete objects that are not wanted.

An object that cannot be written does not keep the others from being written: errors are collected.
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
class WriteResult:
    """Result of writing several objects. Each is named by its title, such as `ConfigMap/flights`."""

    applied: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    problems: dict[str, MerlotError] = field(default_factory=dict)
    """Errors of objects that could not be written, by title."""

    def check(self) -> None:
        """Raise the first problem, if there is one."""
        for error in self.problems.values():
            raise error


class ForeignObjectError(InvalidInputError):
    """Error: an object of the wanted name exists and is not the operator's."""


def stamped(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object as it is applied: with an annotation that holds a hash of the rest."""
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DESIRED: digest(body)}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


class Writer:
    """Writer that applies and deletes objects. It stores what it applied, so that the next pass sees that. A deletion
    reaches the store by the watch."""

    def __init__(self, kube: Kube, store: Store) -> None:
        self._kube = kube
        self._store = store
        self._not_applied: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        """Objects that the API server did not store as applied, by namespace and title: the hash of the applied object,
        and the live values of its differing parts by path."""

    async def apply_all(self, bodies: Iterable[Mapping[str, Any]]) -> WriteResult:
        """Apply each object that differs, in order."""
        result = WriteResult()
        for body in bodies:
            object_title = title(body)
            try:
                if await self.apply(body):
                    result.applied.append(object_title)
            except MerlotError as error:
                _LOG.warning("object cannot be written object=%s cause=%s", object_title, error)
                result.problems[object_title] = error
        return result

    async def apply(self, body: Mapping[str, Any]) -> bool:
        """Apply an object unless it is up to date or being deleted. Return True if it was written."""
        wanted = stamped(body)
        live = self._store.get(kind_of(body), namespace_of(body), name_of(body))
        if live is not None and (is_deleting(live) or holds(live, wanted) or self._is_as_applied(live, wanted)):
            return False
        if live is None:
            await self._refuse_foreign(body)
        elif changes_fixed_field(live, wanted):
            await self.delete(live)
        applied = await self._kube.apply(wanted)
        self._store.keep(applied)
        _LOG.info("applied object=%s namespace=%s", title(body), namespace_of(body))
        self._note_not_applied(applied, wanted)
        return True

    def _is_as_applied(self, live: Object, wanted: Mapping[str, Any]) -> bool:
        """Return True if the live object still differs from this very object as it did right after it was applied."""
        not_applied = self._not_applied.get(_key(wanted))
        return not_applied is not None and not_applied == (_hash(wanted), differences(live, wanted))

    def _note_not_applied(self, applied: Object, wanted: Mapping[str, Any]) -> None:
        """Note the fields that are not as applied. The API server drops an empty string in an overlay, and an admission
        plugin may change anything. Without the note, such an object would be applied in every pass."""
        not_applied = differences(applied, wanted)
        if not_applied:
            self._not_applied[_key(wanted)] = (_hash(wanted), not_applied)
            _LOG.warning("fields are not as applied object=%s fields=%s", title(wanted), ", ".join(not_applied))
        else:
            self._not_applied.pop(_key(wanted), None)

    async def delete_all(self, bodies: Iterable[Object]) -> WriteResult:
        """Delete objects, except those that are being deleted already."""
        result = WriteResult()
        for body in bodies:
            if is_deleting(body):
                continue
            try:
                await self.delete(body)
                result.deleted.append(title(body))
            except MerlotError as error:
                _LOG.warning("object cannot be deleted object=%s cause=%s", title(body), error)
                result.problems[title(body)] = error
        return result

    async def delete(self, body: Object, *, propagation: str = "Background") -> None:
        """Delete an object."""
        await self._kube.delete(body, propagation=propagation)
        _LOG.info("deleted object=%s namespace=%s", title(body), namespace_of(body))

    async def _refuse_foreign(self, body: Mapping[str, Any]) -> None:
        """Raise ForeignObjectError if an object of this name exists and is not the operator's. Objects without the
        operator's label are not watched, so without this check such an object would be taken over silently."""
        try:
            live = await self._kube.get(kind_of(body), namespace_of(body), name_of(body))
        except NotFoundError:
            return
        if labels_of(live).get(MANAGED_BY) != FIELD_MANAGER and not _was_ours(live):
            raise ForeignObjectError(f"{title(body)} exists and is not the operator's; rename or delete it")


def changes_fixed_field(live: Object, wanted: Mapping[str, Any]) -> bool:
    """Return True if the object must be recreated: the API server does not let the role of a RoleBinding change."""
    return "roleRef" in wanted and not holds(live.get("roleRef"), wanted["roleRef"])


def _was_ours(live: Object) -> bool:
    """Return True if the operator once wrote the object, and somebody took its label away."""
    return any(entry.get("manager") == FIELD_MANAGER for entry in live["metadata"].get("managedFields", ()))


def _key(body: Object) -> tuple[str, str]:
    return namespace_of(body), title(body)


def _hash(stamped_body: Mapping[str, Any]) -> str:
    return str(annotations_of(stamped_body)[DESIRED])


def title(body: Object) -> str:
    """Return kind and name, such as `ConfigMap/flights`."""
    return f"{body['kind']}/{name_of(body)}"
