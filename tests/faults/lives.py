"""Tables that live: days are published and merged, a stream is consumed and sealed, segments are removed and brought
back. Beside that a probe asks all the time, and knows which answers are right."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.events import COUNTS, EventFiles, events_manifest
from tests.support.sample import BY_THREE_DAYS, START_MS, order_rows, orders_manifest, upload_orders

from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot.values.periods import DAY_MS

FLUSH_ROWS = 200
NUM_ROWS = 20
REMOVED_DAY = 17_000
"""The day of the segment that is removed and brought back: in 2070, so that it is not merged even twenty years from
now."""
LATER_MS = START_MS + REMOVED_DAY * DAY_MS
ORDERS_COUNT = f"SELECT COUNT(*) FROM orders WHERE at < {LATER_MS}"


@dataclass
class Bounds:
    """The numbers of rows that an answer may have: no fewer than were answered before, no more than were written."""

    least: int = 0
    most: int = 0


@dataclass
class Life:
    """Two tables of a deployment, `orders` by batches and `events` by a stream of files, and what is true of them."""

    controller_url: Callable[[], str]
    broker_url: Callable[[], str]
    store: DeepStore
    files: EventFiles | None
    """None: there is no stream."""
    replication: int = 1
    orders: Bounds = field(default_factory=Bounds)
    events: Bounds = field(default_factory=Bounds)
    num_days: int = 0
    num_whole: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why answers said that they were not whole."""
    wrong: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Apply the manifests, and wait until the first rows answer."""
        self.apply_again()
        self._publish(REMOVED_DAY)
        self.publish()
        if self.files is not None:
            self.append()
        self.is_whole()

    def apply_again(self) -> None:
        """Apply the manifests."""
        self.apply_orders("3650d")
        if self.files is not None:
            manifest = events_manifest(self.files.folder, flush_rows=FLUSH_ROWS)
            self.call("POST", "/apply", manifest.model_dump_json(by_alias=True, exclude_unset=True).encode())
        self.call("POST", "/apply", BY_THREE_DAYS.encode(), "application/yaml")

    def apply_orders(self, retention: str) -> None:
        """Apply the manifest of `orders` with this retention."""
        manifest = orders_manifest(replication=self.replication).model_dump(
            mode="json", by_alias=True, exclude_unset=True
        )
        manifest["spec"]["retention"] = retention
        self.call("POST", "/apply", json.dumps(manifest).encode())

    def publish(self) -> None:
        """Publish one more day."""
        self.orders.most += NUM_ROWS
        self._publish(self.num_days)
        self.num_days += 1

    def _publish(self, day: int) -> None:
        records = upload_orders(self.store, [day], NUM_ROWS)
        body = {"records": [one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in records]}
        self.call("POST", "/segments/orders/publish", json.dumps(body).encode())

    def append(self) -> None:
        """Write more rows into the stream, enough to end a segment now and then."""
        assert self.files is not None
        self.events.most += FLUSH_ROWS // 2
        self.files.append(FLUSH_ROWS // 2)

    def remove_and_undelete(self) -> None:
        """Remove a segment and bring it back from the trash."""
        name = f"orders_{REMOVED_DAY}"
        self.call("DELETE", f"/segments/orders/{name}")
        wait_until(lambda: name in str(self.call("GET", "/tables/orders/trash")))
        self.call("POST", "/tables/orders/undelete", json.dumps([name]).encode())

    def act(self, draw: random.Random) -> None:
        """Take one step of the tables' life."""
        draw.choice((self.publish, self.publish, self.append, self.append, self.append, self.remove_and_undelete))()

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """Ask the controller, and again after an answer that says that it is out for a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._call_once(method, path, body, kind)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
            time.sleep(0.05)

    def _call_once(self, method: str, path: str, body: bytes | None, kind: str) -> Any:
        request = urllib.request.Request(self.controller_url() + path, body, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def ask(self, sql: str) -> Mapping[str, Any] | None:
        """The broker's answer, whole; None if there is no broker now."""
        body = json.dumps({"sql": sql, "queryOptions": "timeoutMs=20000"}).encode()
        request = urllib.request.Request(
            f"{self.broker_url()}/query/sql", body, {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                found: Mapping[str, Any] = json.load(answer)
                return found
        except OSError:
            return None

    def rows_of(self, sql: str) -> list[int] | None:
        """The row of an answer that says that it is whole."""
        answer = self.ask(sql)
        if answer is None or answer["exceptions"] or not answer.get("resultTable"):
            for one in () if answer is None else answer["exceptions"]:
                self.reasons[f"{one['errorCode']} {one['message'][:250]}"] += 1
            return None
        row: list[int] = answer["resultTable"]["rows"][0]
        return row

    def look(self) -> None:
        """Ask both tables once. What a whole answer had, no later whole answer lacks."""
        for sql, bounds in ((ORDERS_COUNT, self.orders), (COUNTS, self.events))[: 1 if self.files is None else 2]:
            least = bounds.least
            row = self.rows_of(sql)
            if row is None:
                continue
            self.num_whole += 1
            if len(set(map(int, row))) != 1 or not least <= row[0] <= bounds.most:
                self.wrong.append(f"{sql}: {row}, and {least} to {bounds.most} are right")
            bounds.least = max(bounds.least, int(row[0]))

    def is_whole(self) -> None:
        """Wait until all rows answer."""

        def right() -> bool:
            self.look()
            assert not self.wrong, self.wrong
            return (self.orders.least, self.events.least) == (self.orders.most, self.events.most)

        wait_until(right)
        wait_until(lambda: self.rows_of(f"SELECT COUNT(*) FROM orders WHERE at >= {LATER_MS}") == [NUM_ROWS])
        total = sum(sum(order_rows(day, NUM_ROWS)["amount"].to_pylist()) for day in range(self.num_days))
        assert self.rows_of(f"SELECT SUM(amount) FROM orders WHERE at < {LATER_MS}") == [total]

    def stored(self) -> set[str]:
        """Files of segments in the deep store."""
        folder = Path(urlsplit(self.store.uri).path)
        return {path.name for path in folder.glob("*/*.mseg")}

    @contextmanager
    def probed(self, *, is_sweeping: bool = False) -> Iterator[None]:
        """Ask all the while the block runs; afterwards nothing was wrong, and no file is gone that had been there, if
        none is due to be swept."""
        is_over, seen = threading.Event(), self.stored()

        def probe() -> None:
            while not is_over.wait(0.03):
                self.look()
                seen.update(self.stored())

        thread = threading.Thread(target=probe)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
        assert not self.wrong, self.wrong
        assert seen
        assert is_sweeping or seen <= self.stored(), "files are gone from the deep store"
