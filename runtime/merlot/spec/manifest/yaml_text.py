"""Parse YAML text to plain values, with the line of every path. Timestamps stay text, and a repeated key is a
problem.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from merlot.spec.manifest.problems import ManifestProblem

MAX_DEPTH = 50
MAX_VALUES = 100_000
MAX_DIGITS = 1_000
"""Most digits of a number. Messages show numbers, and Python converts no number of more than 4,300 digits to text."""
INT_TAG = "tag:yaml.org,2002:int"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loader of libyaml if PyYAML has it, thirty times as fast as the one in Python.

    It resolves only what JSON has: `2013-01-01` stays text, as it does in kubectl."""


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
        """Return the line of a path, or of its closest ancestor that is written."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)


def read(text: str, problems: list[ManifestProblem]) -> list[Document]:
    """Return the documents of a file without empty ones; append the problems of the text to `problems`."""
    documents: list[Document] = []
    loader = _Loader("")
    try:
        _check_size(text)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or node.tag == "tag:yaml.org,2002:null":
                continue
            walk = _LineRecorder({}, problems)
            walk.visit(node, "", MAX_DEPTH)
            documents.append(Document(loader.construct_document(node), len(documents) + 1, walk.lines))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.append(
            ManifestProblem("", f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else None)
        )
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(ManifestProblem("", f"not YAML: {error}"))
    except (LookupError, AttributeError, TypeError):  # PyYAML raises these for `!!int ''` and `!!bool x`
        problems.append(ManifestProblem("", "not YAML: a value is not what its tag says"))
    finally:
        loader.dispose()
    return documents


def _check_size(text: str) -> None:
    """Raise YAMLError if the text holds more than a manifest may, before anything is built from it."""
    depth = num_values = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        num_values += isinstance(event, yaml.NodeEvent)
        if depth > MAX_DEPTH or num_values > 2 * MAX_VALUES:
            raise _too_much()


def _too_much() -> yaml.YAMLError:
    return yaml.YAMLError(f"more than {MAX_DEPTH} levels or {MAX_VALUES:,} values; does an alias hold itself?")


class _LineRecorder:
    """Visitor that records the line of every path and reports repeated keys. It bounds how far aliases can expand."""

    def __init__(self, lines: dict[str, int], problems: list[ManifestProblem]) -> None:
        self.lines = lines
        self._problems = problems
        self._left = MAX_VALUES

    def visit(self, node: yaml.Node, path: str, depth: int) -> None:
        self._left -= 1
        if depth == 0 or self._left < 0:
            raise _too_much()
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, path, depth)
        elif isinstance(node, yaml.ScalarNode) and node.tag == INT_TAG and len(node.value) > MAX_DIGITS:
            problem = f"a number has {len(node.value)} characters, more than {MAX_DIGITS}; quote it if it is text"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        elif isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self.visit(item, f"{path}[{number}]", depth - 1)

    def _visit_mapping(self, node: yaml.MappingNode, path: str, depth: int) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            child = f"{path}.{name}" if path else name
            line = key.start_mark.line + 1
            if name in seen:
                self._problems.append(ManifestProblem(child, "is written twice; keep one", line))
            seen.add(name)
            self.lines[child] = line
            self.visit(value, child, depth - 1)
