"""Plans are as their files say: a query that begins to scan what an index served shows as a line that differs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plans.plan_fixtures import FILES, Layout, layouts, rendered


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Layout]]:
    with layouts(tmp_path_factory.mktemp("plans")) as opened:
        yield opened


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_plans_are_as_written(path: Path, made: list[Layout]) -> None:
    wanted, got = path.read_text().splitlines(), rendered(path, made).splitlines()
    difference = list(difflib.unified_diff(wanted, got, path.name, "now", n=12, lineterm=""))
    assert not difference, "\n".join([*difference, "if that is right: make plans"])
