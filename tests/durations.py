"""Print where the tests' time goes: `python -m tests.durations [REPORT.xml ...]`.

Reads JUnit reports of `make test` and `make test-e2e` (build/reports/*.xml by default), prints wall and CPU seconds by
folder and by file, and the 50 most expensive tests. CPU seconds are those of the test's process and of every process it
started, Spark and ZooKeeper included; `tests/conftest.py` writes them into the reports.
"""

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPORTS = Path("build/reports")
MOST_TESTS = 50
FOLDERS_OF_UNITS = "tests/unit"


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The time that one test took."""

    file: str
    name: str
    wall_s: float
    cpu_s: float

    @property
    def folder(self) -> str:
        """Two folders deep; three below tests/unit."""
        depth = 3 if self.file.startswith(FOLDERS_OF_UNITS) else 2
        return "/".join(self.file.split("/")[:-1][:depth])


def read_report(path: Path) -> Iterator[Spent]:
    """The tests of one JUnit report that ran."""
    for case in ET.parse(path).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        properties = {each.get("name"): each.get("value") for each in case.iter("property")}
        yield Spent(
            file=properties.get("file") or case.get("classname", "").replace(".", "/"),
            name=case.get("name", ""),
            wall_s=float(case.get("time", 0)),
            cpu_s=float(properties.get("cpu_s") or 0),
        )


def _table(tests: Iterable[Spent], key: Callable[[Spent], str], most: int) -> str:
    groups: dict[str, list[Spent]] = defaultdict(list)
    for each in tests:
        groups[key(each)].append(each)
    total = sum(each.wall_s for group in groups.values() for each in group) or 1.0
    rows = sorted(groups.items(), key=lambda group: -sum(each.wall_s for each in group[1]))
    lines = [
        f"{sum(each.wall_s for each in group):9.1f} {100 * sum(each.wall_s for each in group) / total:5.1f} %"
        f" {sum(each.cpu_s for each in group):9.1f} {len(group):7d}  {name}"
        for name, group in rows[:most]
    ]
    return "\n".join([f"{'wall s':>9} {'share':>7} {'CPU s':>9} {'tests':>7}", *lines])


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]] or sorted(REPORTS.glob("*.xml"))
    if not paths:
        sys.exit(f"no reports in {REPORTS}: run make test first, or name JUnit files")
    tests = [each for path in paths for each in read_report(path)]
    wall, cpu = sum(each.wall_s for each in tests), sum(each.cpu_s for each in tests)
    print(f"{len(tests)} tests: {wall:.0f} s summed over tests, {cpu:.0f} s of CPU\n")
    print("By folder\n" + _table(tests, lambda each: each.folder, len(tests)))
    print("\nBy file\n" + _table(tests, lambda each: each.file, MOST_TESTS))
    print("\nBy test\n" + _table(tests, lambda each: f"{each.file}::{each.name}", MOST_TESTS))


if __name__ == "__main__":
    main()
