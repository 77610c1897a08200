"""Convert manifest text to models and back. All problems are reported at once, each with its path and how to fix it.

`load` is for what users write. `from_stored` is for what the cluster stored, perhaps by a newer version: it ignores
unknown fields and does not repeat the checks between fields.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from merlot.errors import InvalidInputError
from merlot.spec.manifest import problems as manifest_problems
from merlot.spec.manifest import rollup_checks, table_checks, yaml_text
from merlot.spec.manifest.problems import ManifestProblem
from merlot.spec.rules import rollup as rollup_rules
from merlot.spec.rules import table as table_rules
from merlot.spec.rules import upsert as upsert_rules
from merlot.spec.rules.rule import Rules, violations
from merlot.spec.table import Table
from merlot.spec.tasks import MergeRollupTask
from merlot.spec.upsert import UpsertConfig

__all__ = [
    "KINDS",
    "Manifest",
    "ManifestError",
    "ManifestProblem",
    "dump",
    "from_stored",
    "load",
    "load_document",
    "load_tables",
]

Manifest = Table | MergeRollupTask | UpsertConfig
M = TypeVar("M", Table, MergeRollupTask, UpsertConfig)
Check = Callable[[Mapping[str, Any]], Iterable[ManifestProblem]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Kind of object: its model, the rules between its fields, and the check for what CEL cannot express."""

    model: type[Table] | type[MergeRollupTask] | type[UpsertConfig]
    rules: Rules
    check: Check


KINDS: Mapping[str, _Kind] = {
    "Table": _Kind(Table, table_rules.RULES, table_checks.check),
    "MergeRollupTask": _Kind(MergeRollupTask, rollup_rules.RULES, rollup_checks.check),
    "UpsertConfig": _Kind(UpsertConfig, upsert_rules.RULES, lambda _: ()),
}
"""Kinds of manifests, by the text of `kind`."""

SERVER_METADATA = frozenset(
    {
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName"),
        *("generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
    }
)
"""Metadata that an API server adds. It is ignored, so that the output of `kubectl get -o yaml` can be applied again."""


class ManifestError(InvalidInputError):
    """Raised for an invalid manifest; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: tuple[ManifestProblem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


def load(text: str) -> list[Manifest]:
    """Read the documents of a YAML (or JSON) file; raise ManifestError with the problems of all documents."""
    manifests: list[Manifest] = []
    problems: list[ManifestProblem] = []
    documents = yaml_text.read(text, problems)
    for document in documents:
        document_problems = _problems_of(document.value)
        problems.extend(problem.at_document(document, is_only=len(documents) == 1) for problem in document_problems)
        if not document_problems:
            manifests.append(_validated(document.value))
    if not documents and not problems:
        problems.append(ManifestProblem("", f"the manifest is empty; write a document with kind: {' or '.join(KINDS)}"))
    problems.extend(_repeated_names(manifests))
    if problems:
        raise ManifestError(tuple(problems))
    return manifests


def load_tables(text: str) -> list[Table]:
    """Return the tables of a file. Manifests of other kinds are checked, but not returned."""
    return [manifest for manifest in load(text) if isinstance(manifest, Table)]


@overload
def load_document(document: object) -> Table: ...


@overload
def load_document(document: object, model: type[M]) -> M: ...


def load_document(document: object, model: Any = Table) -> Any:
    """Read one parsed document, as an API server stores it; raise ManifestError if it is invalid."""
    kind = next(candidate for candidate in KINDS.values() if candidate.model is model)
    problems = _problems_of(document, kind)
    if problems:
        raise ManifestError(tuple(problems))
    return kind.model.model_validate(_prepared(document), by_alias=True, by_name=False)


@overload
def from_stored(document: Mapping[str, Any]) -> Table: ...


@overload
def from_stored(document: Mapping[str, Any], model: type[M]) -> M: ...


def from_stored(document: Mapping[str, Any], model: Any = Table) -> Any:
    """Read what this or a newer version wrote by `dump`; raise ManifestError if that is impossible."""
    try:
        return model.model_validate(document, by_alias=True, by_name=False, extra="ignore")
    except ValidationError as error:
        raise ManifestError(tuple(manifest_problems.from_pydantic(error, document, model))) from None


def dump(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest's JSON form. Defaults are written out, so that a later version's defaults do not change it."""
    return manifest.model_dump(mode="json", by_alias=True, exclude_none=True)


def _kind_of(document: Mapping[str, Any]) -> _Kind:
    """Return the kind that the document names, or the most similar one."""
    written = str(document.get("kind", "Table"))
    near = difflib.get_close_matches(written.lower(), [name.lower() for name in KINDS], n=1, cutoff=0.6)
    by_name = {name.lower(): kind for name, kind in KINDS.items()}
    return KINDS.get(written) or by_name[near[0] if near else "table"]


def _validated(document: object) -> Manifest:
    prepared = _prepared(document)
    assert isinstance(prepared, dict)
    return _kind_of(prepared).model.model_validate(prepared, by_alias=True, by_name=False)


def _problems_of(document: object, kind: _Kind | None = None) -> list[ManifestProblem]:
    prepared = _prepared(document)
    if not isinstance(prepared, dict):
        return [ManifestProblem("", "a manifest is a mapping with apiVersion, kind, metadata and spec")]
    kind = kind or _kind_of(prepared)
    try:
        kind.model.model_validate(prepared, by_alias=True, by_name=False)
        of_fields = []
    except ValidationError as error:
        of_fields = manifest_problems.from_pydantic(error, prepared, kind.model, KINDS)
    broken = [
        ManifestProblem(
            violation.path, violation.message + manifest_problems.nearest(violation.word, violation.choices)
        )
        for violation in violations(kind.rules, prepared)
    ]
    return [*of_fields, *broken, *kind.check(prepared)]


def _prepared(document: object) -> object:
    """Return the document as Kubernetes would store it: without nulls, status and what an API server adds."""
    if not isinstance(document, dict):
        return document
    result = {key: value for key, value in document.items() if key != "status"}
    metadata = result.get("metadata")
    if isinstance(metadata, dict):
        result["metadata"] = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
    return _without_nulls(result)


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _repeated_names(manifests: Sequence[Manifest]) -> list[ManifestProblem]:
    counts = Counter((manifest.kind, manifest.metadata.name) for manifest in manifests)
    return [
        ManifestProblem("metadata.name", f"{_noun(kind)} {name!r} is declared {count} times; keep one")
        for (kind, name), count in counts.items()
        if count > 1
    ]


def _noun(kind: str) -> str:
    return "table" if kind == "Table" else kind
