"""Files that were built by a manifest that differs from the applied one in one field, and that come without it.

Clients upload them, or publish their records and tell no shape. Whatever differs, the file is refused by the name of
the field, or each row is answered once, in the types of the applied table.
"""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count
from tests.support.apps import serve_app
from tests.unit.spec import built_rows, variants
from tests.unit.spec.variants import Variant

from merlot.catalog import uploaded
from merlot.catalog.publish import upload
from merlot.cluster.manifests.tables import put_table
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.ids import offline
from merlot.metastore.sqlite import SqliteMetastore
from merlot.segment.build.request import BuiltSegment
from merlot.spec.schema import FieldSpec
from merlot.spec.shape import differences, shape_of
from merlot.spec.table import Table
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER

OF_BATCHES = ("append", "upsert", "hybrid")
"""Bases whose tables take batches."""
TABLE = offline("trips")
BOUNDARY = "a boundary of no file"
MOST_OF_A_FIELD = count("MERLOT_VARIANTS", quick=1, every=100)
Send = Callable[[str, BuiltSegment, Path], "urllib.request.Request"]


def of_body(url: str, one: BuiltSegment, _: Path) -> urllib.request.Request:
    headers = {"Content-Type": "application/octet-stream"}
    return urllib.request.Request(f"{url}/v2/segments?tableName=trips", one.path.read_bytes(), headers)


def of_form(url: str, one: BuiltSegment, _: Path) -> urllib.request.Request:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'.encode()
    body = head + one.path.read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode()
    headers = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"', "UPLOAD_TYPE": "SEGMENT"}
    return urllib.request.Request(f"{url}/segments?tableName=trips&tableType=OFFLINE", body, headers)


def of_record(url: str, one: BuiltSegment, folder: Path) -> urllib.request.Request:
    record = upload(DeepStore(str(folder / "deep")), one, TABLE)
    document = record.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    body = {"records": [document], "replace": [record.name]}
    headers = {"Content-Type": "application/json"}
    return urllib.request.Request(f"{url}/segments/trips/publish", json.dumps(body).encode(), headers)


DOORS: dict[str, Send] = {"body": of_body, "form": of_form, "record": of_record}
QUICK = {("append", "record"), ("upsert", "form"), ("hybrid", "body")}


def answer_to(request: urllib.request.Request) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Cluster:
    """A controller of one table that has rows by its own manifest."""

    def __init__(self, service: ControllerService, url: str, door: Send, folder: Path, table: Table) -> None:
        self._service, self.url, self._door, self._folder, self._table = service, url, door, folder, table

    def bring(self, one: BuiltSegment) -> str:
        """Send a file, which takes the place of the one of its name; return why it is refused, "" if it is not."""
        status, text = answer_to(self._door(self.url, one, self._folder))
        assert status in (200, 400), text
        return "" if status == 200 else text

    def rows(self) -> list[built_rows.Row]:
        """Return the rows that are answered, as the table reads them."""
        files = [Path(one.url.removeprefix("file://")) for one in self._service.view("trips").visible.values()]
        return built_rows.rows_under(files, self._table.spec.table_schema)


@contextmanager
def cluster(folder: Path, base: str, door: str) -> Iterator[Cluster]:
    folder.mkdir()
    store = SqliteMetastore(folder / "state.sqlite")
    table = variants.in_own_store(variants.base(base))
    put_table(store, table)
    places = AllowedPlaces(AllowedStores(own=str(folder / "deep")), AllowedStreams(folders=EVERY_FOLDER))
    service = ControllerService(store, places=places)
    service.uploads.take = uploaded.accept_upload
    with serve_app(make_app(service)) as url:
        yield Cluster(service, url, DOORS[door], folder, table)
    store.close()


def differing(name: str) -> list[Variant]:
    """Manifests of another shape than a base's, by which rows can be built: a few of each field."""
    applied, found = shape_of(variants.base(name).spec), dict[str, list[Variant]]()
    for one in variants.every():
        same_field = found.setdefault(one.path, [])
        is_wanted = one.base == name and len(same_field) < MOST_OF_A_FIELD
        if is_wanted and differences(applied, shape_of(one.table.spec)) and built_rows.segments_of(one.table):
            same_field.append(one)
    return [one for each in found.values() for one in each]


def doors() -> Iterator[Any]:
    """Every base with every door; a quick run has each of them once."""
    for base, door in itertools.product(OF_BATCHES, DOORS):
        is_quick = (base, door) in QUICK
        slow = pytest.mark.slow("each door and each base is in another case")
        yield pytest.param(base, door, id=f"{base}-{door}", marks=[] if is_quick else [slow])


@pytest.mark.parametrize(("base", "door"), list(doors()))
def test_a_file_without_its_manifest_is_refused_by_the_field_or_brings_each_row_once(
    tmp_path: Path, base: str, door: str
) -> None:
    own = built_rows.segments_of(variants.base(base))
    expected, problems, num_refused = built_rows.base_rows(base), list[str](), 0
    different = differing(base)
    for number, variant in enumerate(different):
        with cluster(tmp_path / str(number), base, door) as found:
            assert [found.bring(one) for one in own] == [""] * len(own)
            assert found.rows() == expected
            refusals = [found.bring(one) for one in built_rows.segments_of(variant.table)]
            num_refused += any(refusals)
            problems += [f"{variant.id}: {one}" for one in refusals if one and not names_field(one, variant)]
            problems += [f"{variant.id}: {one}" for one in changes(variant, found.rows(), expected)]
    assert not problems, "\n".join(problems)
    assert len(different) > num_refused > len(different) // 4


def names_field(message: str, variant: Variant) -> bool:
    """Say whether the message has a field of the path, or the column."""
    parts = set(variant.path.replace("]", "").replace("[", ".").split(".")) - {"spec", "schema", "fields"}
    return any(part in message for part in parts or {"fields"})


def changes(variant: Variant, now: list[built_rows.Row], expected: list[built_rows.Row]) -> Iterator[str]:
    """Say which rows are not as the table's own manifest stores them, but for what another one leaves out."""
    now, expected = (sorted(rows, key=_time_of) for rows in (now, expected))
    if [_time_of(row) for row in now] != [_time_of(row) for row in expected]:
        yield f"{len(now)} rows in place of {len(expected)}"
        return
    for row, wanted in zip(now, expected, strict=True):
        if not is_harmless(variant, row, wanted):
            yield f"{row} in place of {wanted}"
            return


def _time_of(row: built_rows.Row) -> Any:
    return next(value for name, _, value in row if name == "at")


def is_harmless(variant: Variant, row: built_rows.Row, wanted: built_rows.Row) -> bool:
    """Say whether a row lacks nothing but columns that the other manifest lacks, which are null, and the ends of texts
    that its maxLength cuts."""
    names = variant.table.spec.table_schema.names
    for (name, kind, value), (expected_name, expected_kind, expected) in zip(row, wanted, strict=True):
        if (name, kind) != (expected_name, expected_kind):
            return False
        is_cut = variant.place == (FieldSpec, "max_length") and begins(expected, value)
        if value != expected and not (name not in names and value is None) and not is_cut:
            return False
    return True


def begins(whole: Any, part: Any) -> bool:
    """Say whether a text is the beginning of another one, or each text of a list is."""
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(begins, whole, part))
    return isinstance(whole, str) and isinstance(part, str) and whole.startswith(part)


@pytest.mark.parametrize(
    "headers",
    [
        {"UPLOAD_TYPE": "URI", "DOWNLOAD_URI": "file:///lake/other.mseg"},
        {"UPLOAD_TYPE": "METADATA", "DOWNLOAD_URI": "file:///lake/other.mseg"},
        {"UPLOAD_TYPE": "URI"},
        {"UPLOAD_TYPE": "metadata"},
        {"DOWNLOAD_URI": "file:///lake/other.mseg"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
@pytest.mark.parametrize("path", ["/segments", "/v2/segments"])
def test_a_file_that_lies_elsewhere_is_refused_by_the_kind_of_upload(
    tmp_path: Path, path: str, headers: dict[str, str]
) -> None:
    """Even a file of the table's own manifest, since nobody has looked into it."""
    own = built_rows.segments_of(variants.base("append"))[0]
    with cluster(tmp_path / "c", "append", "body") as found:
        request = urllib.request.Request(f"{found.url}{path}?tableName=trips", own.path.read_bytes(), headers)
        status, text = answer_to(request)
        kind = headers.get("UPLOAD_TYPE", "SEGMENT").upper()
        assert (status, f"uploadType={kind}" in text) == (400, True)
        assert found.rows() == []
