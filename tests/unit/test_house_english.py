"""Counts what STYLE.md's section "English" forbids: the ceilings only fall."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *(ROOT / "runtime" / "merlot", ROOT / "operator" / "merlot_operator", ROOT / "spark" / "merlot_spark"),
    *(ROOT / "examples" / "demos", ROOT / "tests" / "support"),
)
QUALIFIED = (ROOT / "runtime" / "merlot" / "sql" / "syntax.py",)
"""Modules whose classes are named with their module wherever they are used, as `ast` is."""
CEILINGS = {
    "for one in": 0,
    "headless docstring": 0,
    "class name of several modules": 0,
    "variable found": 0,
    "variable told": 0,
    "variable known": 0,
    "variable kept": 0,
    "variable one": 0,
}
"""How often each may occur in all packages together. Lower a number in the commit that mends some; never raise it."""
HEADLESS = re.compile(r"(?:Of|What|Whoever|Those|Whether|Which|As many) ")
VAGUE_VARIABLES = frozenset({"found", "told", "known", "kept", "one"})


def parsed_modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        paths = sorted(path for path in package.rglob("*.py") if not path.name.endswith("_pb2.py"))
        assert paths, f"no sources below {package}"
        for path in paths:
            yield path, ast.parse(path.read_text())


def docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The strings that stand as statements in the body of a module, class or function: docstrings of attributes too."""
    for statement in node.body:
        match statement:
            case ast.Expr(ast.Constant(str(text))):
                yield text.lstrip()


def habits_of(module: ast.Module) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in ast.walk(module):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                counts["headless docstring"] += sum(HEADLESS.match(text) is not None for text in docstrings(node))
            case ast.For(target=ast.Name("one")) | ast.AsyncFor(target=ast.Name("one")):
                counts["for one in"] += 1
            case ast.comprehension(target=ast.Name("one")):
                counts["for one in"] += 1
            case ast.Name(name, ast.Store()) | ast.arg(name) if name in VAGUE_VARIABLES:
                counts[f"variable {name}"] += 1
    return counts


def class_names(module: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef)}


def num_shared(modules: Iterable[set[str]]) -> int:
    """Class names that are defined in more than one module."""
    homes = Counter(name for names in modules for name in names)
    return sum(count > 1 for count in homes.values())


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    """Holds the syntax tree of one module at a time: of all together, garbage collection takes most of the time."""
    total: Counter[str] = Counter()
    classes: dict[Path, set[str]] = {}
    for path, module in parsed_modules():
        total += habits_of(module)
        classes[path] = class_names(module)
    assert classes.keys() >= set(QUALIFIED)
    total["class name of several modules"] = num_shared(classes[path] for path in classes.keys() - set(QUALIFIED))
    return total


@pytest.mark.parametrize("habit", CEILINGS)
def test_habit_does_not_spread(habit: str, counts: Counter[str]) -> None:
    assert counts[habit] <= CEILINGS[habit], 'STYLE.md, "English", says what to write instead'


def test_every_habit_that_is_counted_has_a_ceiling(counts: Counter[str]) -> None:
    assert counts.keys() <= CEILINGS.keys()


BAD = '''
"""Of a segment: what it lacks."""

class Piece:
    size: int
    """Whether it fits."""

def f(told: int) -> list[int]:
    """Those that stay."""
    found = [one for one in range(told)]
    return found
'''
GOOD = '''
"""Find what a segment lacks."""

class Piece:
    size: int
    """Its bytes."""

def f(limit: int) -> list[int]:
    """Return the rows that stay."""
    rows = [row for row in range(limit)]
    return rows
'''


def test_habits_are_recognized() -> None:
    assert habits_of(ast.parse(BAD)) == {
        "headless docstring": 3,
        "for one in": 1,
        "variable one": 1,
        "variable found": 1,
        "variable told": 1,
    }
    assert habits_of(ast.parse(GOOD)).total() == 0
    assert num_shared(class_names(ast.parse(text)) for text in (BAD, GOOD, "class Other: ...")) == 1
