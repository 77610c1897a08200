"""A metastore that comes back as it was some time ago, or empty, and whoever recovers the table then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.clients import Clients
from tests.simulation.deepstore import Files
from tests.simulation.ledger import NONE, Intent, Rows
from tests.simulation.metastore import Copy, Session, Weather
from tests.simulation.processes import TABLE, Place

from merlot.broker.metastore_rollbacks import DOUBT_S
from merlot.cluster.losses import CatalogRecord, find_lost
from merlot.controller.cleaning.catalog_store import read_catalog
from merlot.errors import CorruptionError, UnavailableError

LOOK_MS: Final = 5_000


class Restores:
    """Makes backups and puts them back. Until a controller has judged a metastore that came back, nobody writes."""

    def __init__(self, place: Place, god: Session, clients: Clients, apply: Callable[[], None]) -> None:
        self._place = place
        self._god = god
        self._clients = clients
        self._apply = apply
        """Applies the table's manifest."""
        calm = Weather(place.weather.dice)
        self._files = Files(place.deep, place.timeline, calm, "god")
        self._copies: list[Copy] = []
        self._restored_ms = 0
        self._is_behind = False
        self.num_restores = self.num_recoveries = 0

    def back_up(self) -> None:
        self._copies.append(self._place.store.backup())

    def restore(self, *, is_empty: bool) -> None:
        """Put a backup back, or begin with an empty metastore, in which the table is applied anew."""
        place, ledger = self._place, self._place.ledger
        catalog = self._catalog()
        if self._clients.is_held or catalog is None or (not is_empty and not self._copies):
            return
        self.num_restores += 1
        self._clients.is_held = True
        self._restored_ms = place.timeline.now_ms
        place.store.restore(Copy({}) if is_empty else place.weather.dice.choice(self._copies))
        ledger.come_back(self._rows(catalog))
        self._is_behind = bool(catalog.records) and (ledger.view is None or catalog.epoch > ledger.view.epoch)
        if is_empty:
            self._copies.clear()
            self._apply()
        place.timeline.after(LOOK_MS, lambda: self._look(place.timeline.now_ms + round(DOUBT_S * 1000) - 2 * LOOK_MS))

    def _look(self, doubted_until_ms: int) -> None:
        """Wait until the metastore is judged, and have the table recovered if it is lost."""
        place, ledger = self._place, self._place.ledger
        if find_lost(self._god, TABLE) is not None:
            if self._recover():
                self._clients.is_held = False
                return
        elif self._is_judged():
            if self._is_behind:
                ledger.fail("L6 the metastore knows less than the table's catalog, and a controller saw nothing in it")
            ledger.believe()
            self._clients.is_held = False
            return
        elif place.timeline.now_ms >= doubted_until_ms:
            ledger.believe()
        place.timeline.after(LOOK_MS, lambda: self._look(doubted_until_ms))

    def _is_judged(self) -> bool:
        """Whether a controller has compared the table with its catalog since, and found nothing."""
        return any(one.judged_ms > self._restored_ms for one in self._clients.controllers)

    def _recover(self) -> bool:
        place = self._place
        catalog = self._catalog()
        kept = NONE if catalog is None else self._rows(catalog)
        intent = Intent(adds=kept, removes=place.ledger.rows)  # in two steps, which nobody sees
        is_done = self._clients.recover(intent)
        if is_done:
            self.num_recoveries += 1
            place.ledger.check_told(kept, place.timeline.now_ms, "recovered")
            place.ledger.believe()
        return is_done

    def _catalog(self) -> CatalogRecord | None:
        try:
            return read_catalog(self._files, TABLE)
        except (CorruptionError, UnavailableError):
            return None

    def _rows(self, catalog: CatalogRecord) -> Rows:
        return frozenset(row for one in catalog.records for row in self._place.ledger.contents[one.key_text])
