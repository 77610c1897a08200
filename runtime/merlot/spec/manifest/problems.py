"""Problems of a manifest in plain text: pydantic's errors become a path and a hint at how to fix it."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Union

from pydantic import BaseModel, ValidationError

from merlot.spec import column_names, tasks, upserting
from merlot.spec.tenancy import QUANTITY
from merlot.uris import redact
from merlot.values import periods
from merlot.values.durations import DURATION

if TYPE_CHECKING:
    from merlot.spec.manifest.yaml_text import Document


PINOTS_NAMES: Final[Mapping[str, str]] = {
    "metadataTTL": "; it is called primaryKeyTtl here",
    "deletedKeysTTL": "; it is called deletedKeysTtl here",
    "comparisonColumn": "; write comparisonColumns, a list",
    "dedupTimeColumn": "; write comparisonColumns, a list",
    "dedupConfig": "; write upsert: {config: {mode: DEDUP}}",
    "upsertConfig": "; write upsert: {config: {mode: FULL}}",
    "enableSnapshot": "; write snapshot: ENABLE",
    "segmentPartitionConfig": "; it is called partitioning here",
    "streamConfigs": "; write ingestion: {stream: {type: kafka, …}}",
    "streamIngestionConfig": "; write ingestion: {stream: {type: kafka, …}}",
    "replicasPerPartition": "; it is called replication here",
    "tableIndexConfig": "; write indexing",
    **{name: f"; remove it: {reason}" for name, reason in upserting.RETIRED.items()},
}
"""Names of Pinot's settings, with a hint at the equivalent setting here; `merlot import` translates whole configs."""
NO_UPSERTS = "; a table without spec.upsert has none"


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """Defect of a manifest: where it is (`spec.schema.fields[3].type`, "" is the whole) and how to fix it."""

    path: str
    message: str
    line: int | None = None
    document: int | None = None
    """Number of the document, from 1, if the file holds several."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _on_one_line(self.path))
        object.__setattr__(self, "message", redact(_on_one_line(self.message)))

    def __str__(self) -> str:
        where = f"document {self.document}: " if self.document else ""
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"

    def at_document(self, document: Document, *, is_only: bool) -> ManifestProblem:
        """Return the same problem with its line and its document's number."""
        return replace(self, line=document.line_of(self.path), document=None if is_only else document.number)


def _on_one_line(text: str) -> str:
    """Return the text with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def suggestion(word: object, choices: Iterable[str]) -> str:
    """Return `; did you mean LONG?`, or a short list of all choices if none is similar."""
    names = list(choices)
    return nearest(word, names) or (f"; one of {', '.join(names)}" if 0 < len(names) <= 12 else "")


def nearest(word: object, choices: Sequence[str]) -> str:
    """Return `; did you mean LONG?`, or nothing if no choice is similar."""
    near = difflib.get_close_matches(str(word).lower(), [name.lower() for name in choices], n=1, cutoff=0.6)
    return f"; did you mean {next(name for name in choices if name.lower() == near[0])}?" if near else ""


def path_of(location: Iterable[int | str]) -> str:
    """Return `("fields", 3, "type")` as `fields[3].type`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def from_pydantic(
    error: ValidationError, document: Mapping[str, Any], model: type[BaseModel], kinds: Iterable[str] = ()
) -> list[ManifestProblem]:
    """Return the problems of a model's validation error. kinds: values that the document's `kind` may have."""
    problems: list[ManifestProblem] = []
    for item in error.errors(include_url=False):
        if not _counts_only_valid_items(item):
            problems.extend(_problems(item, document, model, kinds))
    return list(dict.fromkeys(problems))


def _counts_only_valid_items(item: Mapping[str, Any]) -> bool:
    """Return True if a list is too short only because its invalid items, which have problems of their own, do not
    count."""
    if item["type"] != "too_short" or not isinstance(item["input"], list | dict):
        return False
    return bool(len(item["input"]) >= item["ctx"]["min_length"])


def _problems(
    item: Mapping[str, Any], document: Mapping[str, Any], model: type[BaseModel], kinds: Iterable[str]
) -> Iterator[ManifestProblem]:
    location = _manifest_location(item["loc"], document)
    path = path_of(location)
    context: Mapping[str, Any] = item.get("ctx", {})
    match item["type"]:
        case "missing":
            yield ManifestProblem(path, "is missing")
        case "extra_forbidden":
            hint = PINOTS_NAMES.get(str(location[-1])) or suggestion(location[-1], _fields_at(location[:-1], model))
            yield ManifestProblem(path, f"unknown field{hint}")
        case "enum" | "literal_error":
            choice = [name.strip(" '\"") for name in str(context["expected"]).replace(" or ", ", ").split(", ")]
            choice = list(kinds) if path == "kind" and kinds else [name for name in choice if name != "UNKNOWN"]
            if isinstance(item["input"], dict | list):
                yield ManifestProblem(path, f"must be {' or '.join(choice)}, got {_shown(item['input'])}")
                return
            hint = (
                NO_UPSERTS if path.endswith("mode") and item["input"] == "NONE" else suggestion(item["input"], choice)
            )
            yield ManifestProblem(path, f"unknown {location[-1]} {_shown(item['input'])}{hint}")
        case "value_error":
            for line in str(context["error"]).splitlines():
                inner, separator, message = line.partition(": ")
                is_inner = bool(separator) and inner.startswith(".")
                yield ManifestProblem(path + inner, message) if is_inner else ManifestProblem(path, line)
        case "string_pattern_mismatch":
            yield ManifestProblem(path, f"{_shown(item['input'])} is not allowed{_pattern_hint(context['pattern'])}")
        case kind:
            yield ManifestProblem(path, f"{_sentence(kind, context, item['msg'])}, got {_shown(item['input'])}")


def _manifest_location(location: tuple[int | str, ...], document: Mapping[str, Any]) -> tuple[int | str, ...]:
    """Return the location without the parts that pydantic adds for unions and mapping keys."""
    parts: list[int | str] = []
    value: Any = document
    for position, part in enumerate(location):
        is_last = position == len(location) - 1
        if _holds(value, part):
            value = value[part]
        elif is_last and isinstance(value, dict) and part != "[key]":
            value = None
        else:
            continue
        parts.append(part)
    return tuple(parts)


def _holds(value: object, part: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def _fields_at(location: tuple[int | str, ...], root: type[BaseModel]) -> list[str]:
    """Return the names of the fields that a manifest may have at a location."""
    model: Any = root
    for part in location:
        if isinstance(part, int) or not _is_model(model):
            model = _inner(model)
        else:
            field = next((candidate for candidate in model.model_fields.values() if candidate.alias == part), None)
            model = _inner(field.annotation) if field is not None else None
    return [str(field.alias) for field in model.model_fields.values()] if _is_model(model) else []


def _inner(annotation: Any) -> Any:
    """Return the model inside `X | None`, `tuple[X, ...]` or `Mapping[str, X]`."""
    if _is_model(annotation):
        return annotation
    is_union = typing.get_origin(annotation) in (Union, UnionType)
    arguments = typing.get_args(annotation)
    if is_union or typing.get_origin(annotation) is tuple:
        return next(
            (_inner(argument) for argument in arguments if argument is not type(None) and argument is not ...), None
        )
    return _inner(arguments[-1]) if arguments else None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _shown(value: object) -> str:
    if isinstance(value, str):
        value = redact(value)
        return f'"{value}"' if len(value) <= 60 else f'"{value[:57]}…"'
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return str(value).lower() if isinstance(value, bool) else str(value)


_MESSAGES = {
    "string_type": "must be text (put it in quotes)",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "mapping_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}


def _sentence(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    match kind:
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "too_short" | "string_too_short":
            return f"must hold at least {context['min_length']}"
        case "too_long" | "string_too_long":
            return f"must hold at most {context['max_length']}"
        case _:
            return message[:1].lower() + message[1:]


def _pattern_hint(pattern: str) -> str:
    hints = {
        QUANTITY: "; write a quantity such as 2, 500m or 4Gi",
        DURATION: "; write a duration such as 30d, 12h, 90m, 45s or 2w",
        periods.PERIOD: "; write a period such as 1h, 1d, 7d or 1mo",
        upserting.TTL: "; write a duration such as 30d or 12h, or a bare number",
        upserting.MERGER: "; write a strategy such as OVERWRITE, MAX or UNION, or an entry point's dotted name",
        tasks.LEVEL_NAME: "; a level's name has letters, digits, underscores and dashes",
        column_names.PATTERN: f"; {column_names.HINT}",
        r"^[A-Za-z][A-Za-z0-9_-]*$": "; a name has letters, digits, underscores and dashes, a letter first",
    }
    return hints.get(pattern, f"; it must match {pattern}")
