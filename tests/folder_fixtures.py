"""End the session's fixtures of a folder, or of a file, with the last of its tests.

A Spark session, an API server or a cluster of processes that idles would take CPU time to the end of the run.
"""

from collections.abc import Iterator

import pytest


class FolderFixtures:
    """Pytest plugin that ends them. pytest calls the hooks of a conftest.py only for nodes below its folder, and the
    session, whose fixtures these are, is above."""

    def __init__(self) -> None:
        self._open: dict[pytest.FixtureDef[object], pytest.FixtureRequest] = {}

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
        """Note a fixture of the session that belongs to a folder or a file, not to a plugin."""
        if fixturedef.scope == "session" and fixturedef.baseid:
            self._open[fixturedef] = request

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """End fixtures that the next test cannot use, the last one first; a later test that can sets them up again."""
        yield
        if nextitem is None:
            return
        for fixture in reversed(tuple(self._open)):
            if not nextitem.nodeid.startswith((f"{fixture.baseid}/", f"{fixture.baseid}::")):
                fixture.finish(self._open.pop(fixture))  # type: ignore[arg-type]
