"""A table's manifest with other indexing: its text is edited in place, so that comments and order stay.

What comes out is read again, and is right or refused: a text is never written whose meaning is another one.
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
    """The fields that differ, as they are written below `spec.indexing`."""
    return yaml.safe_dump(_differences(before, after), sort_keys=False, default_flow_style=None, width=_WIDE)


def edited(text: str, table: str, after: IndexingSpec) -> str:
    """A file of manifests in which the table of this raw name has that indexing.

    Raises InvalidInputError if the file has no such table, or writes it in a way that cannot be edited."""
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
    found = [one for one in load_tables(text) if one.raw_name == name]
    if not found:
        raise InvalidInputError(f"the file has no table={name}")
    return found[0]


def _differences(before: IndexingSpec, after: IndexingSpec) -> dict[str, Any]:
    old, new = _written(before), _written(after)
    return {key: value for key, value in new.items() if old.get(key) != value}


def _written(indexing: IndexingSpec) -> dict[str, Any]:
    return indexing.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _with_field(text: str, table: str, key: str, values: tuple[Any, Any]) -> str:
    """The text with one field of `spec.indexing` replaced, from old to new; a list that only grows keeps its lines."""
    old, value = values
    spec = _child(_node_of(text, table), "spec")
    indexing = _child(spec, "indexing")
    if not isinstance(indexing, yaml.MappingNode):
        return _with_key(text, spec, "indexing", {key: value})
    known = _child(indexing, key)
    if known is None:
        return _with_key(text, indexing, key, value)
    if not old or not isinstance(value, list) or value[: len(old)] != old:
        flow = yaml.safe_dump(value, default_flow_style=True, width=_WIDE).strip()
        return text[: known.start_mark.index] + flow + text[_end(known) :]
    return _with_items(text, known, value[len(old) :])


def _with_items(text: str, sequence: Any, items: list[Any]) -> str:
    at = _end(sequence.value[-1])
    if sequence.flow_style:
        flow = yaml.safe_dump(items, default_flow_style=True, width=_WIDE).strip()[1:-1]
        return f"{text[:at]}, {flow}{text[at:]}"
    lines = yaml.safe_dump(items, sort_keys=False, default_flow_style=None, width=_WIDE)
    if all(isinstance(one, str) for one in items):
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
    """A mapping below its key, a field a line; empty for what is none."""
    if not isinstance(value, Mapping):
        return ""
    inner = yaml.safe_dump(dict(value), sort_keys=False, default_flow_style=None, width=_WIDE)
    return f"{key}:\n" + "".join(f"{_STEP}{line}\n" for line in inner.splitlines())


def _with_lines(text: str, at: int, column: int, lines: str) -> str:
    """Lines below the one in which something ends, as deep as a column."""
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
    """Where the text of a node ends: of what is written as a block, where its last part does."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
