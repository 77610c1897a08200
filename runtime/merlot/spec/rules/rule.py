"""Rule of a manifest: the field that it is about, its condition, and the message if the condition fails.

A rule whose condition names `OLD` judges only changes. What CEL cannot express is a function in
`merlot.spec.manifest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from merlot.spec.rules.language import MalformedError, Names, RuleCondition


class Rule(NamedTuple):
    """Rule of a manifest."""

    path: str
    """Field that the rule is about, below the object to which it applies; empty for the object itself."""
    condition: RuleCondition
    message: str
    """Text that says how to fix the field."""
    is_of_kubernetes: bool = False
    """True if only Kubernetes applies the rule; a cluster outside Kubernetes does not."""
    is_of_model: bool = False
    """True if the model itself applies the rule."""
    choices: Sequence[str] = ()
    """Words that a wrong word at the failing path may be a misspelling of. CEL has no way to say so."""

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
    """Broken rule of a document."""

    path: str
    """Path at which it is broken; in Python this may be an item of the field."""
    message: str
    field: str
    """Path of the field that an API server reports."""
    word: str = ""
    """Text at the path, if the rule has choices."""
    choices: Sequence[str] = ()


Rules = Mapping[str, Sequence[Rule]]
"""Rules of a kind, by the path of the objects to which they apply: `spec`, or `spec.levels[]` for each item of a
list."""


def violations(
    rules: Rules, document: object, old: object = None, *, as_api_server: bool = False
) -> Iterator[Violation]:
    """Yield the broken rules of a document. old: the document before a change. as_api_server: apply all rules, also
    those of Kubernetes alone and those of a model."""
    for scope, each in rules.items():
        for path, names in _objects(document, old, scope.split(".")):
            for rule in each:
                if as_api_server or not (rule.is_of_kubernetes or rule.is_of_model):
                    yield from _violations_of(rule, path, names)


def _violations_of(rule: Rule, path: str, names: Names) -> Iterator[Violation]:
    field = path + (f".{rule.path}" if rule.path else "")
    for below in rule.failures(names):
        word = _value_at(names["self"], rule.path + below) if rule.choices else ""
        yield Violation(field + below, rule.message, field, word if isinstance(word, str) else "", rule.choices)


def _value_at(document: object, path: str) -> object:
    """Return the value at a path below an object, such as `routing.segmentPruners[0]`; None if there is none."""
    for name, position in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and position and int(position) < len(document):
            document = document[int(position)]
        else:
            return None
    return document


def _objects(document: object, old: object, scope: Sequence[str]) -> Iterator[tuple[str, Names]]:
    """Yield the path of each object in a scope, and the variables of its rules."""
    if not scope:
        yield "", {"self": document} if old is None else {"self": document, "oldSelf": old}
        return
    name, is_list = scope[0].removesuffix("[]"), scope[0].endswith("[]")
    now, before = (each.get(name) if isinstance(each, dict) else None for each in (document, old))
    items = [("", now, before)] if not is_list else _items(now, before)
    for suffix, value, former in items:
        if value is not None:
            for below, names in _objects(value, former, scope[1:]):
                yield f"{name}{suffix}.{below}" if below else f"{name}{suffix}", names


def _items(values: object, old: object) -> list[tuple[str, object, object]]:
    """Return each item of a list with its index as a suffix, and the item of the same name in the old list."""
    if not isinstance(values, list):
        return []
    former = {_name_of(item): item for item in old} if isinstance(old, list) else {}
    return [(f"[{place}]", item, former.get(_name_of(item))) for place, item in enumerate(values)]


def _name_of(item: object) -> object:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None
