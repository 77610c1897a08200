"""Manifest text to models and back: every problem at once, each with its path and what would be right.

`load` is for what users write. `from_stored` is for what the cluster stored, perhaps by a newer version: it ignores
fields that it does not know and repeats no cross-field check.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from merlot.errors import InvalidInputError
from merlot.spec import manifest_checks, manifest_problems, manifest_yaml
from merlot.spec.manifest_problems import Problem
from merlot.spec.table import Table

__all__ = ["ManifestError", "Problem", "dump", "from_stored", "load", "load_document"]

SERVER_METADATA = frozenset(
    {
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName"),
        *("generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
    }
)
"""What an API server adds to metadata; ignored, so that `kubectl get -o yaml` can be applied again."""


class ManifestError(InvalidInputError):
    """A manifest is wrong; `problems` holds all that is wrong with it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


def load(text: str) -> list[Table]:
    """Read the documents of a YAML (or JSON) file; raises ManifestError with all problems of all documents."""
    tables: list[Table] = []
    problems: list[Problem] = []
    documents = manifest_yaml.read(text, problems)
    for document in documents:
        found = _problems_of(document.value)
        problems.extend(problem.at_document(document, is_only=len(documents) == 1) for problem in found)
        if not found:
            tables.append(Table.model_validate(_prepared(document.value), by_alias=True, by_name=False))
    if not documents and not problems:
        problems.append(Problem("", "the manifest is empty; write a document with kind: Table"))
    problems.extend(_repeated_names(tables))
    if problems:
        raise ManifestError(tuple(problems))
    return tables


def load_document(document: object) -> Table:
    """Read one parsed document, as an API server holds it; raises ManifestError."""
    problems = _problems_of(document)
    if problems:
        raise ManifestError(tuple(problems))
    return Table.model_validate(_prepared(document), by_alias=True, by_name=False)


def from_stored(document: Mapping[str, Any]) -> Table:
    """Read what `dump` wrote, in this or a newer version; raises ManifestError if that is impossible."""
    try:
        return Table.model_validate(document, by_alias=True, by_name=False, extra="ignore")
    except ValidationError as error:
        raise ManifestError(tuple(manifest_problems.from_pydantic(error, document))) from None


def dump(table: Table) -> dict[str, Any]:
    """The JSON form of a table, defaults written out so that a later version's defaults do not change it."""
    return table.model_dump(mode="json", by_alias=True, exclude_none=True)


def _problems_of(document: object) -> list[Problem]:
    prepared = _prepared(document)
    if not isinstance(prepared, dict):
        return [Problem("", "a manifest is a mapping with apiVersion, kind, metadata and spec")]
    try:
        Table.model_validate(prepared, by_alias=True, by_name=False)
        found = []
    except ValidationError as error:
        found = manifest_problems.from_pydantic(error, prepared)
    return [*found, *manifest_checks.check(prepared)]


def _prepared(document: object) -> object:
    """The document without nulls, status and what an API server adds: the form that Kubernetes would store."""
    if not isinstance(document, dict):
        return document
    kept = {key: value for key, value in document.items() if key != "status"}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
    return _without_nulls(kept)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _repeated_names(tables: list[Table]) -> list[Problem]:
    names = [table.metadata.name for table in tables]
    return [
        Problem("metadata.name", f"table {name!r} is declared {names.count(name)} times; keep one")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
