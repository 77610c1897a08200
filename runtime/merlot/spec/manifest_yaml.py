"""YAML text to plain values, with the line of every path. Timestamps stay text, and a repeated key is a problem."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from merlot.spec.manifest_problems import Problem


class _Loader(yaml.SafeLoader):
    """Resolves what JSON has: `2013-01-01` stays text, as it does in kubectl."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its value, its number from 1, and the line of each path."""

    value: Any
    number: int
    lines: dict[str, int]

    def line_of(self, path: str) -> int | None:
        """The line of a path, or of the nearest part of it that is written."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)


def read(text: str, problems: list[Problem]) -> list[Document]:
    """The documents of a file, empty ones left out; appends to `problems` what is wrong with the text."""
    documents: list[Document] = []
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None or node.tag == "tag:yaml.org,2002:null":
                continue
            lines: dict[str, int] = {}
            problems.extend(_walk(node, "", lines))
            value = loader.construct_document(node)
            documents.append(Document(value, len(documents) + 1, lines))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.append(Problem("", f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else None))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(Problem("", f"not YAML: {error}"))
    finally:
        loader.dispose()
    return documents


def _walk(node: yaml.Node, path: str, lines: dict[str, int]) -> Iterator[Problem]:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            child = f"{path}.{name}" if path else name
            if name in seen:
                yield Problem(child, "is written twice; keep one", key.start_mark.line + 1)
            seen.add(name)
            lines[child] = key.start_mark.line + 1
            yield from _walk(value, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _walk(item, f"{path}[{number}]", lines)
