"""A rule of a manifest: which field it is about, what has to hold, and what to say if it does not.

A rule whose condition names `OLD` judges changes alone. What CEL cannot say is a function in `merlot.spec.manifest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from merlot.spec.rules.language import Condition, MalformedError, Names


class Rule(NamedTuple):
    """One rule."""

    path: str
    """Field that it is about, below the object whose rule it is; empty for the object itself."""
    condition: Condition
    message: str
    """What would be right."""
    is_of_kubernetes: bool = False
    """Whether a cluster outside Kubernetes takes what it refuses."""
    is_of_model: bool = False
    """Whether the model itself judges by it."""

    def failures(self, names: Names) -> Sequence[str]:
        """Return the paths below its field at which the rule is broken. names: `self`, and `oldSelf` of a change."""
        try:
            return tuple(dict.fromkeys(self.condition.failures(names)))
        except MalformedError:
            return ()

    def as_validation(self) -> dict[str, str]:
        """Return the rule as a member of `x-kubernetes-validations`."""
        where = {"fieldPath": f".{self.path}"} if self.path else {}
        return {"rule": self.condition.cel, "message": self.message, **where}


class Violation(NamedTuple):
    """A broken rule of a document."""

    path: str
    """Where it is broken: in Python perhaps an item of the field."""
    message: str
    field: str
    """Field by which an API server names it."""


Rules = Mapping[str, Sequence[Rule]]
"""Rules of a kind by the path of the objects that they are of: `spec`, `spec.levels[]` for each item of a list."""


def violations(
    rules: Rules, document: object, old: object = None, *, as_api_server: bool = False
) -> Iterator[Violation]:
    """Find the broken rules of a document. old: the document before a change. as_api_server: go by all rules, also by
    those of Kubernetes alone and those of a model."""
    for scope, each in rules.items():
        for path, names in _objects(document, old, scope.split(".")):
            for rule in each:
                if as_api_server or not (rule.is_of_kubernetes or rule.is_of_model):
                    field = path + (f".{rule.path}" if rule.path else "")
                    yield from (Violation(field + below, rule.message, field) for below in rule.failures(names))


def _objects(document: object, old: object, scope: Sequence[str]) -> Iterator[tuple[str, Names]]:
    """Return the objects at a path as variables of their rules, with the path of each."""
    if not scope:
        yield "", {"self": document} if old is None else {"self": document, "oldSelf": old}
        return
    name, is_list = scope[0].removesuffix("[]"), scope[0].endswith("[]")
    found, before = (each.get(name) if isinstance(each, dict) else None for each in (document, old))
    items = [("", found, before)] if not is_list else _items(found, before)
    for suffix, value, former in items:
        if value is not None:
            for below, names in _objects(value, former, scope[1:]):
                yield f"{name}{suffix}.{below}" if below else f"{name}{suffix}", names


def _items(values: object, old: object) -> list[tuple[str, object, object]]:
    """Return the items of a list with their places, each with the item of the same name in the list before."""
    if not isinstance(values, list):
        return []
    former = {_name_of(item): item for item in old} if isinstance(old, list) else {}
    return [(f"[{place}]", item, former.get(_name_of(item))) for place, item in enumerate(values)]


def _name_of(item: object) -> object:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None
