"""The table of mutants: fixes of the history, each with the edit that undoes it in today's source."""

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(Path(__file__).parent.glob("*.toml"))


class UnfitMutantError(Exception):
    """A mutant that no longer fits the source, or whose tests are not there."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fix undone: in `file`, the only occurrence of `old` becomes `new`."""

    area: str
    id: str
    commit: str
    subject: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files or folders of tests, or one test's id, that are to fail; the first one is asked first."""
    keyword: str = ""
    """Which of these tests, as pytest's -k has it."""

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Where its tests are, each folder once."""
        paths = [test.partition("::")[0] for test in self.tests]
        return tuple(dict.fromkeys(str(Path(path).parent) if path.endswith(".py") else path for path in paths))

    def applied_to(self, source: str) -> str:
        """The file with the defect. Raises UnfitMutantError unless the old text is there exactly once."""
        if (times := source.count(self.old)) != 1:
            raise UnfitMutantError(f"{self.area}/{self.id}: the old text is {times} times in {self.file}, not once")
        return source.replace(self.old, self.new)


def read_tables(paths: list[Path] = TABLES) -> list[Mutant]:
    """All mutants, by area."""
    return [
        Mutant(area=path.stem, **{**entry, "tests": tuple(entry["tests"])})
        for path in paths
        for entry in tomllib.loads(path.read_text())["mutant"]
    ]


def chosen(mutants: list[Mutant], names: list[str]) -> list[Mutant]:
    """Those of the areas, ids and commits that are named, or all. Raises UnfitMutantError if one is unknown."""
    known = {name for one in mutants for name in (one.area, one.id, one.commit)}
    if unknown := sorted(set(names) - known):
        raise UnfitMutantError(f"no area, id or commit of that name: {', '.join(unknown)}")
    return [one for one in mutants if not names or {one.area, one.id, one.commit} & set(names)]
