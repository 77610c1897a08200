"""Cache of objects in the API server: every declared object and every object of the operator, by kind. One event loop;
readers get the bodies themselves and must not change them.

A body arrives by a watch or as the answer to a request, and the answer may come first. So the store notes, apart from
the bodies, up to which version of an object every change was reported. A change that only an answer has shown so far is
still news when the watch brings it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from merlot_operator.kube.client import Listing
from merlot_operator.kube.kinds import Object, ResourceKind, kind_of, labels_of, name_of, namespace_of


class Store:
    """A cache of objects. Older versions never replace newer ones."""

    def __init__(self) -> None:
        self._objects: dict[ResourceKind, dict[str, dict[str, Object]]] = defaultdict(lambda: defaultdict(dict))
        self._removed: dict[str, None] = {}
        """Uids of the objects that were deleted last: no listing that began before brings them back."""
        self._reported: dict[str, int] = {}
        """Version of each object, by uid, up to which every change was reported, or is the operator's own."""

    def put(self, body: dict[str, Any]) -> bool:
        """Store a body that a watch shows. Return True if it is news, which the caller then has to report."""
        self.keep(body)
        return body["metadata"]["uid"] not in self._removed and self.tell(body)

    def keep(self, body: dict[str, Any]) -> None:
        """Store a body that answers a request. Nothing is reported: others may have changed the object too."""
        objects = self._objects[kind_of(body)][namespace_of(body)]
        name, uid = name_of(body), body["metadata"]["uid"]
        old = objects.get(name)
        if uid in self._removed or (old is not None and _version(body) <= _version(old)):
            return
        if old is not None and old["metadata"]["uid"] != uid:
            self._reported.pop(old["metadata"]["uid"], None)
        objects[name] = _slim(body)

    def keep_own(self, body: dict[str, Any]) -> None:
        """Store a declared object after the operator wrote its status or finalizers. The watch's event of
        that write is not news, unless somebody else changed the object since the last event."""
        old = self.get(kind_of(body), namespace_of(body), name_of(body))
        self.keep(body)
        if old is None or old["metadata"]["uid"] != body["metadata"]["uid"]:
            return
        if self._reported.get(old["metadata"]["uid"]) == _version(old) and _declared(old) == _declared(_slim(body)):
            self.tell(body)

    def tell(self, body: Object) -> bool:
        """Note that all changes up to this version are reported. Return True if they were not yet."""
        uid, version = body["metadata"]["uid"], _version(body)
        if version <= self._reported.get(uid, -1):
            return False
        self._reported[uid] = version
        return True

    def remove(self, body: Object) -> None:
        """Remove a deleted object, unless another object of its name came after it."""
        objects = self._objects[kind_of(body)][namespace_of(body)]
        old, uid = objects.get(name_of(body)), body["metadata"]["uid"]
        self._removed[uid] = None
        self._reported.pop(uid, None)
        if len(self._removed) > MOST_REMOVED:
            del self._removed[next(iter(self._removed))]
        if old is not None and old["metadata"]["uid"] == uid:
            del objects[name_of(body)]

    def replace(self, kind: ResourceKind, namespace: str | None, listing: Listing) -> list[Object]:
        """Store a complete listing. Remove and return the objects that were stored when it began and are not
        in it. Objects that arrived meanwhile stay, and objects that were deleted meanwhile do not come back."""
        listed = {body["metadata"]["uid"] for body in listing.items}
        stored = list(self.all(kind)) if namespace is None else list(self.of(kind, namespace))
        gone = [body for body in stored if body["metadata"]["uid"] not in listed and _version(body) <= listing.version]
        for body in gone:
            self.remove(body)
        for body in listing.items:
            self.keep(body)
        return gone

    def forget(self, namespace: str | None) -> None:
        """Drop every object of a namespace, or of all namespaces if it is None."""
        for objects in self._objects.values():
            for name in [name for name in objects if namespace in (None, name)]:
                for body in objects.pop(name).values():
                    self._reported.pop(body["metadata"]["uid"], None)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        return self._objects[kind][namespace].get(name)

    def of(self, kind: ResourceKind, namespace: str) -> list[Object]:
        """Return all objects of a namespace, by name."""
        objects = self._objects[kind][namespace]
        return [objects[name] for name in sorted(objects)]

    def all(self, kind: ResourceKind) -> Iterator[Object]:
        """Yield all objects of a kind."""
        for objects in self._objects[kind].values():
            yield from objects.values()

    def with_label(self, kind: ResourceKind, namespace: str, label: str, value: str) -> list[Object]:
        """Return the objects of a namespace that have this label."""
        return [body for body in self.of(kind, namespace) if labels_of(body).get(label) == value]


def _declared(body: Object) -> Object:
    """Return an object without its status, finalizers, version and managed fields, which change when the operator
    writes."""
    ignored = ("resourceVersion", "managedFields", "finalizers")
    metadata = {key: value for key, value in body["metadata"].items() if key not in ignored}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": metadata}


def _version(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])


def _slim(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without fields that nobody here reads, and with interned strings. With a thousand objects, such
    fields and repeated strings take most of the memory."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    slim: dict[str, Any] = _interned({**body, "metadata": metadata})
    return slim


def _interned(value: Any) -> Any:
    match value:
        case dict():
            return {sys.intern(key): _interned(item) for key, item in value.items()}
        case list():
            return [_interned(item) for item in value]
        case str() if len(value) < LONG_TEXT:
            return sys.intern(value)
        case _:
            return value


LONG_TEXT = 100
MOST_REMOVED = 10_000
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
