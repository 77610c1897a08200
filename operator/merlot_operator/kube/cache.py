"""What the API server last told: every declared and every own object, by kind. One event loop; readers get the bodies
themselves and must not change them.

A body comes by a watch or as the answer to a request, and an answer may come first. So the store notes apart from the
bodies up to which version of an object all changes were told to those whom they concern: the watch's event of a change
that only an answer has shown so far is news all the same.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from merlot_operator.kube.client import Listing
from merlot_operator.kube.kinds import Kind, Object, kind_of, labels_of, name_of, namespace_of


class Store:
    """A cache of objects. Older versions never replace newer ones."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[str, dict[str, Object]]] = defaultdict(lambda: defaultdict(dict))
        self._removed: dict[str, None] = {}
        """Uids of the last that were deleted: no listing that began before brings them back."""
        self._told: dict[str, int] = {}
        """By uid: the version up to which every change was told, or is the operator's own."""

    def put(self, body: dict[str, Any]) -> bool:
        """Keep a body that a watch shows; returns whether it is news, which the caller then tells."""
        self.keep(body)
        return body["metadata"]["uid"] not in self._removed and self.tell(body)

    def keep(self, body: dict[str, Any]) -> None:
        """Keep a body that answers a request, which tells nobody: others may have changed it too."""
        objects = self._objects[kind_of(body)][namespace_of(body)]
        name, uid = name_of(body), body["metadata"]["uid"]
        old = objects.get(name)
        if uid in self._removed or (old is not None and _version(body) <= _version(old)):
            return
        if old is not None and old["metadata"]["uid"] != uid:
            self._told.pop(old["metadata"]["uid"], None)
        objects[name] = _slim(body)

    def keep_own(self, body: dict[str, Any]) -> None:
        """Keep a declared object as it is after the operator wrote its status or finalizers. The event of that is no
        news, unless what somebody else wrote since the last event is in it."""
        old = self.get(kind_of(body), namespace_of(body), name_of(body))
        self.keep(body)
        if old is None or old["metadata"]["uid"] != body["metadata"]["uid"]:
            return
        if self._told.get(old["metadata"]["uid"]) == _version(old) and _declared(old) == _declared(_slim(body)):
            self.tell(body)

    def tell(self, body: Object) -> bool:
        """Note that all changes up to this version are told; returns whether they were not."""
        uid, version = body["metadata"]["uid"], _version(body)
        if version <= self._told.get(uid, -1):
            return False
        self._told[uid] = version
        return True

    def remove(self, body: Object) -> None:
        """Forget an object that was deleted, unless one of the same name came after it."""
        objects = self._objects[kind_of(body)][namespace_of(body)]
        old, uid = objects.get(name_of(body)), body["metadata"]["uid"]
        self._removed[uid] = None
        self._told.pop(uid, None)
        if len(self._removed) > MOST_REMOVED:
            del self._removed[next(iter(self._removed))]
        if old is not None and old["metadata"]["uid"] == uid:
            del objects[name_of(body)]

    def replace(self, kind: Kind, namespace: str | None, listing: Listing) -> list[Object]:
        """Take over a complete listing; returns what was known when it began and is not in it. What came while it was
        under way stays, and what went does not come back."""
        listed = {body["metadata"]["uid"] for body in listing.items}
        known = list(self.all(kind)) if namespace is None else list(self.of(kind, namespace))
        gone = [one for one in known if one["metadata"]["uid"] not in listed and _version(one) <= listing.version]
        for body in gone:
            self.remove(body)
        for body in listing.items:
            self.keep(body)
        return gone

    def forget(self, namespace: str | None) -> None:
        """Know nothing any more of a namespace, or of any."""
        for objects in self._objects.values():
            for place in [one for one in objects if namespace in (None, one)]:
                for body in objects.pop(place).values():
                    self._told.pop(body["metadata"]["uid"], None)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object."""
        return self._objects[kind][namespace].get(name)

    def of(self, kind: Kind, namespace: str) -> list[Object]:
        """All of a namespace, by name."""
        objects = self._objects[kind][namespace]
        return [objects[name] for name in sorted(objects)]

    def all(self, kind: Kind) -> Iterator[Object]:
        """All of a kind."""
        for objects in self._objects[kind].values():
            yield from objects.values()

    def with_label(self, kind: Kind, namespace: str, label: str, value: str) -> list[Object]:
        """Those of a namespace with this label."""
        return [body for body in self.of(kind, namespace) if labels_of(body).get(label) == value]


def _declared(body: Object) -> Object:
    """Keep the parts of an object that users write."""
    ours = ("resourceVersion", "managedFields", "finalizers")
    metadata = {key: value for key, value in body["metadata"].items() if key not in ours}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": metadata}


def _version(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])


def _slim(body: dict[str, Any]) -> dict[str, Any]:
    """Without what nobody here reads, and with its texts shared: of a thousand objects that is most of the memory."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    slim: dict[str, Any] = _shared({**body, "metadata": metadata})
    return slim


def _shared(value: Any) -> Any:
    match value:
        case dict():
            return {sys.intern(key): _shared(item) for key, item in value.items()}
        case list():
            return [_shared(item) for item in value]
        case str() if len(value) < LONG_TEXT:
            return sys.intern(value)
        case _:
            return value


LONG_TEXT = 100
MOST_REMOVED = 10_000
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
