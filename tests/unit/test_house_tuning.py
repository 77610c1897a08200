"""Counts the constants of modules that tests patch: the ceilings only fall.

A wait or a bound that a test lowers is a value that is passed down: a role's tuning (ADR 27), or a parameter with a
default.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
CEILINGS = {
    "merlot.aggregates": 11,
    "merlot.catalog": 1,
    "merlot.cli": 2,
    "merlot.cluster": 14,
    "merlot.controller": 3,
    "merlot.ingest": 12,
    "merlot.kernels": 4,
    "merlot.merge": 2,
    "merlot.metastore": 1,
    "merlot.query": 38,
    "merlot.segment": 6,
    "merlot.server": 3,
    "merlot.sql": 5,
    "merlot.streams": 6,
    "merlot.upsert": 1,
    "merlot.vectors": 8,
    "merlot_operator": 32,
    "merlot_spark": 2,
}
"""Largest number of constants that tests may patch, by package. Lower one in the commit that removes a patch;
never raise one."""


def modules_of(tree: ast.Module) -> dict[str, str]:
    """Return the dotted names behind the names that a file imports."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            modules |= {name.asname or name.name: name.name for name in node.names}
    return modules


def patched_constants(text: str) -> Iterator[str]:
    """Return the dotted names of the constants that a test's source patches, by a call of `setattr` or an
    assignment."""
    tree = ast.parse(text)
    modules = modules_of(tree)
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            owner, _, name = ast.unparse(target).rpartition(".")
            if CONSTANT.fullmatch(name) and owner in modules:
                yield f"{modules[owner]}.{name}"
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"):
            continue
        texts = [argument.value if isinstance(argument, ast.Constant) else "" for argument in node.args]
        if len(node.args) == 3 and CONSTANT.fullmatch(str(texts[1])):
            owner, _, rest = ast.unparse(node.args[0]).partition(".")
            yield ".".join(filter(None, (modules.get(owner, owner), rest, str(texts[1]))))
        elif len(node.args) == 2 and CONSTANT.fullmatch(str(texts[0]).rpartition(".")[2]):
            yield str(texts[0])


def package_of(name: str) -> str:
    """Return the package that a ceiling is for; an empty text for a module of another project."""
    first, second = name.split(".")[:2]
    return f"{first}.{second}" if first == "merlot" else first if first.startswith("merlot_") else ""


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    texts = [path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))]
    counts = Counter(package_of(name) for text in texts for name in patched_constants(text))
    del counts[""]
    return counts


def test_no_package_has_more_patched_constants(counts: Counter[str]) -> None:
    more = {package: number for package, number in counts.items() if number > CEILINGS.get(package, 0)}
    assert more == {}, "pass the value down: docs/adr/0027 says how"


def test_patches_are_recognized_however_they_name_the_module() -> None:
    text = """
from merlot.streams import kafka
from merlot.sql import parse as reader
monkeypatch.setattr(kafka, "ASK_S", 1)
patch.setattr("merlot.streams.kafka.POLL_BYTES", 1)
patch.setattr(reader.limits, "MOST", 1)
kafka.QUIET_S = 2
self.QUIET_S = 2
monkeypatch.setattr(kafka, "connect", None)
monkeypatch.setattr("merlot.streams.kafka.connect", None)
"""
    assert sorted(patched_constants(text)) == [
        "merlot.sql.parse.limits.MOST",
        "merlot.streams.kafka.ASK_S",
        "merlot.streams.kafka.POLL_BYTES",
        "merlot.streams.kafka.QUIET_S",
    ]
