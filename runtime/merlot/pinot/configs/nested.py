"""Convert Pinot's `complexTypeConfig`, which flattens nested messages, to a derived column for each nested name.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from merlot.pinot.configs.source import REALTIME, ConfigReader, Json
from merlot.spec.column_names import quoted

_NOT_UNNESTED: Final = "rows are made of messages one by one; a list stays one value, as JSON"


def flattened(source: ConfigReader, fields: Sequence[Json], filled: Mapping[str, str], type_: str) -> dict[str, str]:
    """Return expressions by the columns that they fill. A name without an expression in SQL is noted in `source`.

    For `payload.size` of a stream's messages it is `NULLIF(jsonPathString("payload", '$[''size'']'), 'null')`
    in Merlot's SQL. For a batch it is Spark's SQL, with both keys in backticks. filled: columns that already have an
    expression."""
    delimiter, lists = source.text("delimiter") or ".", source.names("fieldsToUnnest")
    if lists:
        source.note("fieldsToUnnest", f"{', '.join(lists)}: {_NOT_UNNESTED}")
    prefixes = source.texts("prefixesToRename")
    source.leave({"collectionNotUnnestedToJson": "lists and objects in columns of one value are JSON in any case"})
    expressions: dict[str, str] = {}
    for field in fields:
        name = field["name"]
        for source_name in _before_renaming(name, prefixes):
            keys = source_name.split(delimiter)
            inside = next((list_name for list_name in lists if source_name.startswith(f"{list_name}{delimiter}")), None)
            if name in filled or name in expressions or len(keys) < 2 or not all(keys):
                continue
            if any("'" in key and '"' in key for key in keys):
                source.note("delimiter", f"{name} stays null: no path has a key with both kinds of quotation marks")
                continue
            if inside is not None:
                source.note("fieldsToUnnest", f"{name} stays null: it is of the rows that {inside} would be")
            else:
                is_list = bool(field.get("multiValue"))
                expressions[name] = _of_message(keys, is_list=is_list) if type_ == REALTIME else _of_struct(keys)
    return expressions


def _before_renaming(name: str, prefixes: Mapping[str, str]) -> Iterator[str]:
    """Yield the names in messages that Pinot would rename to this column by its prefixes, and the name itself."""
    for old, new in prefixes.items():
        if name.startswith(new):
            yield old + name.removeprefix(new)
    yield name


def _of_struct(keys: Sequence[str]) -> str:
    return ".".join("`" + key.replace("`", "``") + "`" for key in keys)


def _of_message(keys: Sequence[str], *, is_list: bool) -> str:
    steps = "".join(f'["{key}"]' if "'" in key else f"['{key}']" for key in keys[1:])
    path = "'$" + steps.replace("'", "''") + "'"
    argument = f"{quoted(keys[0])}, {path}"
    # jsonPathString returns the text `null` if the path has no value.
    return f"jsonPathArray({argument})" if is_list else f"NULLIF(jsonPathString({argument}), 'null')"
