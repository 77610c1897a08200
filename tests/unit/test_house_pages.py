"""Pages say what is there: links, names of modules, commands and targets are looked up."""

import re
from pathlib import Path

import pytest
from tests.pages import PAGES, ROOT

SOURCES = (ROOT / "runtime" / "merlot", ROOT / "runtime", ROOT / "operator", ROOT / "spark")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MODULE = re.compile(r"`((?:[a-z][a-z0-9_]*\.)+(?!slt\b|md\b|py\b|toml\b)[A-Za-z]\w*|merlot_\w+)`")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    heads = [line.lstrip("#").strip().lower() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for target in LINK.findall(line):
            file, _, anchor = target.partition("#")
            if file.startswith(("http:", "https:", "mailto:")):
                continue
            path = page.parent / file if file else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                lost.append(f"{page.name}:{number}: {target}")
    assert lost == []


def is_module(name: str) -> bool:
    """Whether a dotted name is a module, a package, or something that a module defines."""
    for source in SOURCES:
        parts = name.split(".")
        path = source.joinpath(*parts)
        if path.is_dir() or path.with_suffix(".py").exists():
            return True
        home = source.joinpath(*parts[:-1])
        files = [home.with_suffix(".py"), home / "__init__.py"]
        if any(file.exists() and re.search(rf"\b{parts[-1]}\b", file.read_text()) for file in files):
            return True
    return False


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/words.md", "docs/extending.md"])
def test_modules_that_a_page_names_are_there(name: str) -> None:
    """A rename that forgets the page leaves a dangling name."""
    named = set(MODULE.findall((ROOT / name).read_text()))
    assert len(named) > 5
    assert sorted(module for module in named if not is_module(module)) == []


def test_names_of_modules_are_looked_up() -> None:
    assert is_module("sql.shapes")
    assert is_module("merlot_operator.homes")
    assert is_module("spec.indexing.IndexingSpec") or is_module("spec.indexing")
    assert not is_module("sql.no_such_module")
