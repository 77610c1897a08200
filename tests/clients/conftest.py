"""One embedded node for all clients."""

from collections.abc import Iterator

import pytest
from tests.clients.flights_node import Address, flights_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Serves the flights."""
    with flights_node(tmp_path_factory.mktemp("node")) as address:
        yield address
