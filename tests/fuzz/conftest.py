"""A node of every role with every table, one for all tests, and what it says in its log while it is fuzzed."""

import logging
from collections.abc import Iterator

import pytest
from tests.fuzz.fuzzing import Loud
from tests.sql.slt_data import datasets
from tests.sql.slt_nodes import Remote, embedded_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with embedded_node(datasets(), tmp_path_factory.mktemp("fuzz")) as made:
        yield made


@pytest.fixture
def loud() -> Iterator[Loud]:
    handler = Loud()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)
