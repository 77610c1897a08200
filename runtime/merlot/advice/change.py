"""Change the indexing of a table in the text of its manifest, so that comments and the order of fields stay.

The edited text is parsed again and refused if it does not mean exactly the wanted indexing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from merlot.errors import InvalidInputError
from merlot.spec.indexing import IndexingSpec
from merlot.spec.manifest import ManifestError, load_tables
from merlot.spec.table import Table

_WIDE: Final = 1 << 20
_STEP: Final = "  "


def indexing_yaml(before: IndexingSpec, after: IndexingSpec) -> str:
    """Return the fields that differ, as YAML below `spec.indexing`."""
    return yaml.safe_dump(_differences(before, after), sort_keys=False, default_flow_style=None, width=_WIDE)


def edited(text: str, table: str, after: IndexingSpec) -> str:
    """Return a file of manifests in which the table of this raw name has the indexing.

    Raises InvalidInputError if the file has no such table, or writes it in a form that cannot be edited."""
    before = _table(text, table).spec.indexing
    old = _written(before)
    for key, value in _differences(before, after).items():
        text = _with_field(text, table, key, (old.get(key), value))
    try:
        is_right = _table(text, table).spec.indexing == after
    except (ManifestError, yaml.YAMLError) as error:
        raise InvalidInputError(f"the manifest cannot be edited table={table}: {error}") from error
    if not is_right:
        raise InvalidInputError(f"the manifest cannot be edited as it is written table={table}")
    return text


def _table(text: str, name: str) -> Table:
    table = next((table for table in load_tables(text) if table.raw_name == name), None)
    if table is None:
        raise InvalidInputError(f"the file has no table={name}")
    return table


def _differences(before: IndexingSpec, after: IndexingSpec) -> dict[str, Any]:
    old, new = _written(before), _written(after)
    return {key: value for key, value in new.items() if old.get(key) != value}


def _written(indexing: IndexingSpec) -> dict[str, Any]:
    return indexing.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _with_field(text: str, table: str, key: str, values: tuple[Any, Any]) -> str:
    """Replace one field of `spec.indexing`. values: old, new. A list that only grows keeps its lines."""
    old, value = values
    spec = _child(_node_of(text, table), "spec")
    indexing = _child(spec, "indexing")
    if not isinstance(indexing, yaml.MappingNode):
        return _with_key(text, spec, "indexing", {key: value})
    present = _child(indexing, key)
    if present is None:
        return _with_key(text, indexing, key, value)
    if not old or not isinstance(value, list) or value[: len(old)] != old:
        flow = yaml.safe_dump(value, default_flow_style=True, width=_WIDE).strip()
        return text[: present.start_mark.index] + flow + text[_end(present) :]
    return _with_items(text, present, value[len(old) :])


def _with_items(text: str, sequence: Any, items: list[Any]) -> str:
    at = _end(sequence.value[-1])
    if sequence.flow_style:
        flow = yaml.safe_dump(items, default_flow_style=True, width=_WIDE).strip()[1:-1]
        return f"{text[:at]}, {flow}{text[at:]}"
    lines = yaml.safe_dump(items, sort_keys=False, default_flow_style=None, width=_WIDE)
    if all(isinstance(item, str) for item in items):
        lines = yaml.safe_dump(items, default_flow_style=False, width=_WIDE)
    return _with_lines(text, at, sequence.start_mark.column, lines)


def _with_key(text: str, mapping: Any, key: str, value: Any) -> str:
    if mapping.flow_style:
        flow = yaml.safe_dump({key: value}, default_flow_style=True, width=_WIDE).strip()[1:-1]
        at = _end(mapping.value[-1][1]) if mapping.value else mapping.end_mark.index - 1
        return f"{text[:at]}{', ' if mapping.value else ''}{flow}{text[at:]}"
    lines = yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=None, width=_WIDE)
    return _with_lines(text, _end(mapping.value[-1][1]), mapping.start_mark.column, _nested(key, value) or lines)


def _nested(key: str, value: Any) -> str:
    """Return a mapping below its key, one field a line; an empty text for any other value."""
    if not isinstance(value, Mapping):
        return ""
    inner = yaml.safe_dump(dict(value), sort_keys=False, default_flow_style=None, width=_WIDE)
    return f"{key}:\n" + "".join(f"{_STEP}{line}\n" for line in inner.splitlines())


def _with_lines(text: str, at: int, column: int, lines: str) -> str:
    """Insert lines, indented to a column, below the line that holds the offset `at`."""
    line_end = text.find("\n", at)
    line_end = len(text) if line_end < 0 else line_end
    indented = "".join(f"\n{' ' * column}{line}" for line in lines.splitlines())
    return text[:line_end] + indented + text[line_end:]


def _node_of(text: str, table: str) -> Any:
    for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
        name = _child(_child(node, "metadata"), "name")
        kind = _child(node, "kind")
        if kind is not None and kind.value == "Table" and name is not None and name.value == table:
            return node
    raise InvalidInputError(f"the file has no table={table}")


def _child(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _end(node: Any) -> int:
    """Return where the text of a node ends; a block ends where its last part does."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
