"""The metastore of simulated clusters behaves like those of real ones."""

from __future__ import annotations

import random

import pytest
from tests.simulation.metastore import Session, Store, Weather
from tests.simulation.timeline import Act, Timeline

from merlot.testing.metastore_contract import MetastoreContract, OpenSession


class AtOnce(Timeline):
    """Plays every act when it is planned."""

    def after(self, delay_ms: int, act: Act, process: object = None, *, is_loop: bool = False) -> None:
        act()


class TestSimulatedMetastore(MetastoreContract):
    @pytest.fixture
    def open_session(self) -> OpenSession:
        store, timeline, weather = Store(None), AtOnce(), Weather(random.Random(0))
        return lambda: Session(store, timeline, weather, process=None)
