"""The processes of a simulated cluster: controllers and brokers are the product's own, servers follow its rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from tests.simulation.deepstore import TORN, URI, DeepStore, Files
from tests.simulation.ledger import Ledger
from tests.simulation.metastore import Session, Store, Weather
from tests.simulation.timeline import Timeline, VirtualClock, VirtualLoop
from tests.support.faults import ProcessDied

from merlot.broker.directory import Directory
from merlot.broker.scatter_gather import scatter
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.scatter_gather.scatter import ScatterRequest
from merlot.cluster import paths
from merlot.cluster.instances.reports import ReportReader, ReportWriter
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.view import TableView, load
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.controller.service import ControllerService
from merlot.errors import ConflictError, CorruptionError, MerlotError, NotFoundError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.query.answer.partial import Partial, PlainRows
from merlot.query.answer.result import QueryStats
from merlot.server.loader import Desired, Holdings, LoadFailure, decide
from merlot.spec.table import TableSpec
from merlot.store.allowed import AllowedStores
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

TABLE: Final = TableName("t_OFFLINE")
SCHEMA: Final = pa.schema([("row", pa.int64())])
RETRY_S: Final = 1.0
"""The pause after a round that failed."""
SERVER_GRACE_S: Final = 60.0
"""How long a server keeps a replaced segment, as servers do: shorter than brokers take a segment for new."""
LOOP: Final[Mapping[str, float]] = {
    "resync_s": 90.0,
    "server_grace_s": 120.0,
    "file_grace_s": 900.0,
}


@dataclass
class Place:
    """Everything outside of a process."""

    timeline: Timeline
    store: Store
    deep: DeepStore
    weather: Weather
    ledger: Ledger
    replaced_s: float = 300.0
    """How long inputs of replacements are kept: less than the trash keeps files, or more."""
    pace_ms: int = 50_000
    """Longest time between two rounds of a controller, and two questions to a broker."""


class Controller:
    """A controller's loop, and the service that it offers."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.clock = VirtualClock(place.timeline, first_s=place.weather.dice.randrange(10_000))
        self._place = place
        self._life = 0
        self.is_up = False
        self.judged_ms = 0
        """When the last round began that compared the table with its catalog."""
        self.start()

    def __repr__(self) -> str:
        return self.name

    def start(self) -> None:
        place = self._place
        self._life += 1
        self.is_up = True
        self.session = Session(place.store, place.timeline, place.weather, self)
        files = Files(place.deep, place.timeline, place.weather, self, session=self.session)
        cleaning = CleaningConfig(replaced_s=place.replaced_s, abandoned_s=450.0, orphan_s=600.0, orphan_scan_s=120.0)
        self.loop = ControllerLoop(
            self.session,
            LoopConfig(owner=self.name, cleaning=cleaning, **LOOP),
            open_files=lambda uri: files,
            open_catalog_store=lambda uri: files,
            clock=self.clock,
        )
        self.service = ControllerService(self.session, self.clock, places=AllowedPlaces(stores=AllowedStores(own=URI)))
        self.service.recovery.open_files = lambda uri: files
        self.service.recovery.read = self._read
        place.timeline.after(place.weather.dice.randrange(2_000), partial(self._round, self._life), self)

    def die(self) -> None:
        """As by SIGKILL; another process takes its place."""
        if self.is_up:
            self.is_up = False
            self.session.die()
            self._place.timeline.after(self._place.weather.dice.randrange(1_000, 60_000), self.start)

    def _round(self, life: int) -> None:
        if life != self._life or not self.is_up:
            return
        began_ms = self._place.timeline.now_ms
        try:
            pause_s = self.loop.round()
        except ProcessDied:
            if life == self._life:
                self.die()
            return
        if pause_s != RETRY_S and self.loop.is_leader and self.loop._catalogs.may_sweep(TABLE):
            self.judged_ms = began_ms
        dice = self._place.weather.dice
        pause_ms = min(round(pause_s * 1000), dice.randrange(1_000, self._place.pace_ms))
        self._place.timeline.after(pause_ms, partial(self._round, life), self)

    def _read(self, url: str, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
        """The record of a file, from its bytes."""
        del table, spec, store_uri
        found = self._place.deep.find(url)
        if found is None:
            raise NotFoundError(f"not in the deep store url={url}")
        if found.data == TORN:
            raise CorruptionError(f"file is torn url={url}")
        record = SegmentRecord.from_bytes(found.data, url)
        return record.model_copy(update={"url": url})


class Server:
    """Loads what it is assigned, and answers for what it has. Its disk fills up, tears and rots."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = InstanceId(name)
        self.clock = VirtualClock(place.timeline, first_s=place.weather.dice.randrange(10_000))
        self._place = place
        self._life = 0
        self.is_up = self.is_full = False
        self.disk: dict[str, bool] = {}
        """Files by key, and whether they are what was fetched."""
        self.start()

    def __repr__(self) -> str:
        return self.name

    def start(self) -> None:
        place = self._place
        self._life += 1
        self.is_up = True
        self.loaded: set[str] = set()
        self._loading: set[str] = set()
        self._retired: dict[str, float] = {}
        self._failures: dict[str, LoadFailure] = {}
        self._view: TableView | None = None
        self.record = InstanceRecord(id=self.name, role=Role.SERVER, host="h", started_ms=self.clock.now_ms())
        self.session = Session(place.store, place.timeline, place.weather, self, may_freeze=False)
        self._reader = ReportReader(self.session, TABLE)
        self._writer = ReportWriter(self.session, TABLE, self.name)
        life = self._life
        self.session.watch(paths.segments_root(TABLE), partial(self._soon, life))
        self.session.on_session(lambda state: self._doubt(life))
        place.timeline.after(place.weather.dice.randrange(2_000), partial(self._pump, life), self)

    def die(self) -> None:
        if self.is_up:
            self.is_up = False
            self.session.die()
            self._place.timeline.after(self._place.weather.dice.choice((2_000, 30_000, 400_000)), self.start)

    def rot(self) -> None:
        """A file on the disk is not what it was; found when it is next read."""
        if self.disk:
            key = self._place.weather.dice.choice(sorted(self.disk))
            self.disk[key] = False

    async def answer(self, request: ServerRequest) -> ServerResponse:
        if not self.is_up:
            raise UnavailableError("connection refused")
        here = [key for key in request.segments if key in self.loaded and self.disk.get(key)]
        for key in set(request.segments) & self.loaded - set(here):  # corrupt: set aside, fetched again
            self.loaded.discard(key)
            self.disk.pop(key, None)
            self._soon(self._life)
        rows = [row for key in here for row in self._place.ledger.contents[key]]
        partial_ = Partial(PlainRows(SCHEMA, (rows,)), QueryStats()) if here else None
        return ServerResponse(partial=partial_, missing=tuple(set(request.segments) - set(here)))

    def _doubt(self, life: int) -> None:
        """What stands in the metastore may be from before the session was lost."""
        self._writer.recheck()
        self._soon(life)

    def _soon(self, life: int) -> None:
        self._place.timeline.after(self._place.weather.dice.randrange(10, 1_000), partial(self._look, life), self)

    def _pump(self, life: int) -> None:
        if life == self._life and self.is_up:
            self._look(life)
            self._place.timeline.after(
                self._place.weather.dice.randrange(20_000, 3 * self._place.pace_ms), partial(self._pump, life), self
            )

    def _look(self, life: int) -> None:
        if life != self._life or not self.is_up:
            return
        try:
            announce(self.session, self.record)
            self._follow(life)
        except ProcessDied:
            if life == self._life:
                self.die()
        except NotFoundError:
            self._view = None
        except MerlotError:
            self._writer.recheck()

    def _follow(self, life: int) -> None:
        self._view = view = load(self.session, TABLE, self._view)
        wanted = {one.key_text: one for one in view.segments.values() if self.name in view.servers_of(one.name)}
        others = {key for one, report in self._reader.read().items() if one != self.name for key in report.loaded}
        holdings = Holdings(loaded=self.loaded, retired=self._retired, loading=self._loading, failures=self._failures)
        alone = {one.key_text for one in view.segments.values()} - others
        now = self.clock.monotonic()
        actions = decide(Desired(records=wanted, irreplaceable=alone), holdings, now, SERVER_GRACE_S)
        for key in actions.retire:
            self._retired[key] = now
        for key in actions.revive:
            self._retired.pop(key, None)
        for key in actions.drop:
            self._retired.pop(key, None)
            self.loaded.discard(key)
            self.disk.pop(key, None)
        for key in actions.forget:
            self._failures.pop(key, None)
        dice = self._place.weather.dice
        for record in actions.load:
            self._loading.add(record.key_text)
            self._place.timeline.after(dice.randrange(100, 8_000), partial(self._load, life, record), self)
        if actions.wake_at is not None:
            delay_ms = round((actions.wake_at - now) * 1000) + 1
            self._place.timeline.after(delay_ms, partial(self._look, life), self)
        errors = {key: failure.message for key, failure in self._failures.items()}
        self._writer.write(self.loaded, errors, revision=1, is_missed=lambda key: key in wanted)

    def _load(self, life: int, record: SegmentRecord) -> None:
        if life != self._life or not self.is_up:
            return
        key = record.key_text
        self._loading.discard(key)
        try:
            if not self.disk.get(key):
                self._fetch(record)
            self.loaded.add(key)
            self._failures.pop(key, None)
        except MerlotError as error:
            self._failures[key] = LoadFailure.after(self._failures.get(key), str(error), self.clock.monotonic())
        self._soon(life)

    def _fetch(self, record: SegmentRecord) -> None:
        weather = self._place.weather
        if self.is_full or weather.chance(weather.lost_request):
            raise UnavailableError("disk is full")
        found = self._place.deep.find(record.url)
        if found is None:
            raise NotFoundError("not in the deep store")
        if found.data == TORN or weather.chance(weather.lost_request):  # torn on the way, or in the store
            raise CorruptionError("file is torn")
        self.disk[record.key_text] = True


class Broker:
    """The product's directory and scatter on an event loop in virtual time."""

    def __init__(self, name: str, place: Place, servers: Mapping[InstanceId, Server]) -> None:
        self.name = name
        self.clock = VirtualClock(place.timeline, first_s=place.weather.dice.randrange(10_000))
        self._place = place
        self._servers = servers
        self._num_lives = 0
        self.start()

    def __repr__(self) -> str:
        return self.name

    @property
    def life_name(self) -> str:
        return f"{self.name}.{self._num_lives}"

    def start(self) -> None:
        place = self._place
        self._num_lives += 1
        self.is_up = True
        self.last: tuple[frozenset[int], bool] | None = None
        self.why = ""
        self.directory: Directory | None = None
        self.loop = VirtualLoop(place.timeline)
        self.session = Session(place.store, place.timeline, place.weather, self.loop, may_freeze=False, may_die=False)
        self.loop.create_task(self._main())

    def die(self) -> None:
        """Its brokers' clients are told of nothing; another life begins soon."""
        if self.is_up:
            self.is_up = False
            self.session.die()
            self.loop.stop()
            self._place.timeline.after(self._place.weather.dice.randrange(500, 30_000), self.start, is_loop=True)

    async def _main(self) -> None:
        channels = Channels(lambda record: LocalChannel(self._servers[record.id].answer))
        while self.directory is None:
            try:
                directory = Directory(self.session, channels, self.clock)
                await directory.start()
                await directory.settle(2.0)
                self._place.ledger.begin(self.life_name)
                self.directory = directory
            except UnavailableError:
                await asyncio.sleep(1.0)
        number = 0
        while True:
            await self._ask(self.directory, channels, number)
            number += 1
            await asyncio.sleep(self._place.weather.dice.uniform(1.0, self._place.pace_ms / 1000))

    async def _ask(self, directory: Directory, channels: Channels, number: int) -> None:
        served = directory.find("t")
        rows: list[int] = []
        self.why = "the table is unknown"
        is_complete = False
        if served is not None:
            try:
                served.check_enabled()
                routes = served.snapshot.select(number)
                request = ScatterRequest(
                    request_id="1", table=TABLE, query=b"", snapshot=served.snapshot, routes=routes,
                    deadline=self.loop.time() + 5.0, schema=SCHEMA,
                )  # fmt: skip
                gathered = await scatter.gather(request, channels, directory.report_call)
                for one in gathered.partials:
                    assert isinstance(one.content, PlainRows)
                    rows += one.content.columns[0]
                self.why = str(gathered.exceptions())
                is_complete = not gathered.exceptions()
            except UnavailableError as error:
                self.why = str(error)
        self.last = (frozenset(rows), is_complete)
        self._place.ledger.check_answer(self.life_name, rows, is_complete=is_complete)


def announce(session: Session, record: InstanceRecord) -> None:
    """Have an instance's ephemeral stand."""
    if session.get(paths.live(record.id)) is None:
        try:
            session.create(paths.live(record.id), record.to_bytes(), ephemeral=True)
        except ConflictError:
            return
