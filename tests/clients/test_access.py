"""An access document on a node: what pinotdb, httpx and gRPC may ask with which credentials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import httpx
import pinotdb
import pytest
from examples.demos.local_node import LocalNode
from tests.clients.flights_node import MANIFEST, NUM_ROWS, Address, build_records

from merlot.security.door import Door
from merlot.spec.manifest.access_document import load_access
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, wait_until

ADMIN = ("admin", "a long secret")
READER = ("ann", "wine and bread")
OTHER = ("olaf", "other tables")
TOKEN = "a token of a machine"


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


DOCUMENT = f"""
users:
  - {{name: admin, passwordHash: {hashed(ADMIN[1])!r}}}
  - {{name: ann, passwordHash: {hashed(READER[1])!r}, groups: [readers]}}
  - {{name: olaf, passwordHash: {hashed(OTHER[1])!r}}}
tokens:
  - {{name: machine, sha256: {hashlib.sha256(TOKEN.encode()).hexdigest()}, groups: [readers]}}
roles:
  - {{name: admins, grants: [{{rights: [admin], tables: ["*"]}}]}}
  - {{name: readers, grants: [{{rights: [query], tables: [flights]}}]}}
  - {{name: others, grants: [{{rights: [query, insert, manage], tables: ["other*"]}}]}}
bindings:
  - {{role: admins, users: [admin]}}
  - {{role: readers, groups: [readers]}}
  - {{role: others, users: [olaf]}}
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    folder = tmp_path_factory.mktemp("guarded")
    local = LocalNode(folder / "data", 0, door=Door(load_access(DOCUMENT, lambda name: name)))
    try:
        local.start()
        publish(local.url, folder)
        yield Address("127.0.0.1", local.port)
    finally:
        local.stop()


def publish(url: str, folder: Path) -> None:
    records = build_records(folder / "built", DeepStore(str(folder / "data" / "deepstore")))
    body = {"publishId": "first", "records": [record.model_dump(mode="json", by_alias=True) for record in records]}
    with httpx.Client(auth=ADMIN, timeout=PATIENCE_S) as client:
        client.post(f"{url}/apply", content=MANIFEST).raise_for_status()
        client.post(f"{url}/segments/flights/publish", json=body).raise_for_status()
        wait_until(lambda: count(client, url) == NUM_ROWS)


def count(client: httpx.Client, url: str) -> int | None:
    answer = client.post(f"{url}/query/sql", json={"sql": "SELECT COUNT(*) FROM flights"}).json()
    return None if answer["exceptions"] else answer["resultTable"]["rows"][0][0]


def test_pinotdb_with_name_and_password(node: Address) -> None:
    with pinotdb.connect(host=node.host, port=node.port, username=READER[0], password=READER[1]) as cursor:
        for _ in range(3):
            cursor.execute("SELECT COUNT(*) FROM flights")
            assert cursor.fetchone() == [NUM_ROWS]


@pytest.mark.parametrize("auth", [None, ("ann", "wrong"), ("nobody", "wine and bread"), OTHER])
def test_pinotdb_with_other_credentials(node: Address, auth: tuple[str, str] | None) -> None:
    user, password = auth or (None, None)
    with (
        pinotdb.connect(host=node.host, port=node.port, username=user, password=password) as cursor,
        pytest.raises(pinotdb.exceptions.DatabaseError),
    ):
        cursor.execute("SELECT COUNT(*) FROM flights")


def test_statuses_and_shapes(node: Address) -> None:
    query = {"sql": "SELECT COUNT(*) FROM flights"}
    with httpx.Client(base_url=node.url, timeout=PATIENCE_S) as client:
        unknown = client.post("/query/sql", json=query)
        assert (unknown.status_code, unknown.json()["code"]) == (401, 401)
        assert unknown.headers["WWW-Authenticate"].startswith("Basic ")
        denied = client.post("/query/sql", json=query, auth=OTHER)
        assert denied.status_code == 403
        assert [error["errorCode"] for error in denied.json()["exceptions"]] == [180]
        allowed = client.post("/query/sql", json=query, headers={"Authorization": f"Bearer {TOKEN}"})
        assert allowed.json()["resultTable"]["rows"] == [[NUM_ROWS]]
        assert client.post("/query/sql", json=query, headers={"Authorization": "Bearer x"}).status_code == 401
        assert client.get("/health").status_code == 200
        assert client.delete("/tables/flights", auth=READER).status_code == 403
        assert client.delete("/tables/flights", auth=OTHER).status_code == 403
        assert client.get("/tables", auth=READER).json() == {"tables": ["flights"]}
        assert client.get("/tables", auth=OTHER).json() == {"tables": []}
