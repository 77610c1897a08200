"""docs/extending.md is followed to the letter: its examples are applied to a copy of the checkout, and run there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extending.md"
COPIED = ("runtime", "tests", "docs", "crds", "pyproject.toml", "Makefile")
EXAMPLES = ("A scalar function", "An aggregate", "An index")
STEP = re.compile(
    r"^(?:(?P<verb>Append to|Create|In) `(?P<path>[^`]+)`(?:, below `(?P<anchor>[^\n]+)`)?|Run):\n\n"
    r"```\w*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Step:
    """An edit of a file, or commands to run where there is no path."""

    verb: str | None
    path: str | None
    anchor: str | None
    text: str

    def apply(self, root: Path) -> None:
        assert self.path is not None
        file = root / self.path
        match self.verb:
            case "Create":
                assert not file.exists()
                file.write_text(self.text)
            case "Append to":
                file.write_text(f"{file.read_text()}\n{self.text}")
            case "In":
                lines = file.read_text().splitlines(keepends=True)
                places = [number for number, line in enumerate(lines, 1) if line.endswith(f"{self.anchor}\n")]
                assert len(places) == 1, f"not one line of {self.path} ends with {self.anchor}"
                file.write_text("".join([*lines[: places[0]], self.text, *lines[places[0] :]]))


def steps_of(example: str) -> list[Step]:
    _, _, rest = PAGE.read_text().partition(f"\n## {example}\n")
    section, _, _ = rest.partition("\n## ")
    return [Step(*found.group("verb", "path", "anchor", "text")) for found in STEP.finditer(section)]


def commands_of(step: Step) -> Iterator[list[str]]:
    """The commands, with this interpreter for that of `.venv`; targets of make as the Makefile has them."""
    for line in step.text.splitlines():
        words = shlex.split(line)
        if words[0] == "make":
            _, _, rest = (ROOT / "Makefile").read_text().partition(f"\n{words[1]}: ")
            recipe = re.findall(r"^\t@?\$\(BIN\)/python (.*)$", rest.partition("\n\n")[0], re.MULTILINE)
            assert recipe, f"make {words[1]} runs nothing"
            yield from ([sys.executable, *shlex.split(command)] for command in recipe)
        else:
            place = words.index(".venv/bin/python")
            yield [
                "env",
                *words[:place],
                sys.executable,
                *words[place + 1 :],
                *("-q", "-p", "no:cacheprovider", "-n", "0"),
            ]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the examples touch."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
        else:
            shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_fits_the_files_that_it_touches(example: str, tmp_path: Path) -> None:
    """Stands for the slow test: every quoted line is there once, and every file is Python still."""
    edits = [step for step in steps_of(example) if step.path is not None]
    for path in {step.path for step in edits if step.path is not None and step.verb != "Create"}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, tmp_path / path)
    for step in edits:
        assert step.path is not None
        (tmp_path / step.path).parent.mkdir(parents=True, exist_ok=True)
        assert step.verb != "Create" or not (ROOT / step.path).exists(), f"{step.path} is taken: choose another example"
        step.apply(tmp_path)
        if step.path.endswith(".py"):
            compile((tmp_path / step.path).read_text(), step.path, "exec")


def test_files_that_the_table_names_are_there() -> None:
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    homes = [ROOT, ROOT / "runtime" / "merlot"]
    paths = {path for line in table for path in re.findall(r"`([\w./]+/[\w./]*)`", line)}
    assert len(paths) > 20
    assert sorted(path for path in paths if not any((home / path).exists() for home in homes)) == []


@pytest.mark.slow("ten seconds of CPU each; the test above sees whether the edits still fit")
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_works_as_the_page_says(example: str, checkout: Path) -> None:
    steps = steps_of(example)
    assert [step.verb for step in steps].count(None) == 1
    for step in steps:
        if step.verb is not None:
            step.apply(checkout)
    paths = [checkout / "runtime", ROOT / "operator", ROOT / "spark"]
    compiled = str(ROOT / "runtime" / "merlot" / "kernels" / "compiled")
    environment = {"NUMBA_CACHE_DIR": compiled, **os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    for command in commands_of(steps[-1]):
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=500, check=False
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
