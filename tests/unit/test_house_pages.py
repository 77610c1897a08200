"""Pages say what is there: links, names of modules, commands and targets are looked up."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.pages import GENERATED, PAGES, ROOT, too_long

from merlot.cli.app import app

SOURCES = (ROOT / "runtime" / "merlot", ROOT / "runtime", ROOT / "operator", ROOT / "spark")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MODULE = re.compile(r"`((?:[a-z][a-z0-9_]*\.)+(?!slt\b|md\b|py\b|toml\b)[A-Za-z]\w*|merlot_\w+)`")
LINKED = [*PAGES, *sorted(path for name in ("docs/adr", "runtime", "examples") for path in (ROOT / name).rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    heads = [line.lstrip("#").strip().lower() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in LINK.findall(page.read_text()):
        file, _, anchor = target.partition("#")
        if file.startswith(("http:", "https:", "mailto:")):
            continue
        path = page.parent / file if file else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            lost.append(target)
    assert lost == []


@each_page
def test_lines_are_as_long_as_those_of_code(page: Path) -> None:
    if page.name not in GENERATED:
        assert too_long(page.read_text()) == [], "run `python -m tests.pages`"


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


def commands_of(name: str) -> Iterator[list[str]]:
    """The words of each command in a page's indented lines, without comments and the `&` of what goes on."""
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL).replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("    ") and re.match(r" +(make|helm|kubectl|curl|\.venv/bin/\w+) ", line):
            yield [word for word in shlex.split(line, comments=True) if word != "&"]


def problem_of_merlot(words: list[str]) -> str | None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        if words[0] not in command.list_commands(None):
            return f"no command {words[0]}"
        _, command, words = command.resolve_command(None, words)
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return next((f"no option {word}" for word in words if word.startswith("-") and word not in options), None)


def problem_of(words: list[str]) -> str | None:
    """What of a command is not there: a target, a subcommand, an option, a module, a file of the checkout."""
    program, *rest = words
    lost = [word for word in rest if word.startswith(("examples/", "charts/", "tests/")) and not (ROOT / word).exists()]
    if lost:
        return f"no file {lost[0]}"
    if program == "make":
        makefile = (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv")
        targets = re.findall(r"^([a-z.][a-z0-9./-]*):", makefile, re.MULTILINE)
        return None if rest[0] in targets else f"no target {rest[0]}"
    if program == ".venv/bin/merlot":
        return problem_of_merlot(rest)
    if rest[:1] == ["-m"] and rest[1] != "pytest":
        return None if is_module(rest[1]) else f"no module {rest[1]}"
    return None


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/quickstart.md"])
def test_commands_of_a_page_are_there(name: str) -> None:
    commands = list(commands_of(name))
    assert len(commands) > 4
    problems = [(shlex.join(words), problem_of(list(words))) for words in commands]
    assert [(command, problem) for command, problem in problems if problem is not None] == []


@pytest.mark.parametrize(
    "command",
    ["make nothing", ".venv/bin/merlot serv", ".venv/bin/merlot serve --no-such", ".venv/bin/python -m merlot.none"],
)
def test_commands_are_looked_up(command: str) -> None:
    assert problem_of(shlex.split(command)) is not None


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
