"""A secret in a URI is refused wherever it comes in, and is then in no log, file or answer."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.node.nodes import StartNode

from merlot import telemetry
from merlot.cluster.manifests.tables import put_table
from merlot.embedded.node import METASTORE_FILE
from merlot.errors import InvalidInputError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import from_stored
from merlot.store.deepstore import DeepStore

SECRET = "wJalrXUtnFEMI"
URIS = [
    f"s3://AKIAEXAMPLE:{SECRET}@bucket/x",
    f"s3://AKIAEXAMPLE:{SECRET}/K7MDENG@bucket/x",
    f"s3://{SECRET}@bucket/x?region=eu-west-1",
    f"s3://bucket/x?region=eu-west-1&access_key=AKIAEXAMPLE&secret_key={SECRET}",
    f"s3://bucket/x?endpoint_override=http://user:{SECRET}@minio:9000",
    f"hdfs://user:{SECRET}@name-node:8020/x",
    f"gs://bucket/x?password={SECRET}",
    f"ftp://user:{SECRET}@host/x",
    f"s3://user:{SECRET}@" + "b" * 3000,
]
FIELDS = ["deepStore: {uri: '%s'}", "ingestion: {batch: [{sourceUri: '%s', format: CSV}]}", "deepStore: ['%s']"]


def manifest(field: str, uri: str, name: str = "orders") -> str:
    return f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: {name}}}
spec:
  {field % uri}
  schema: {{fields: [{{name: a, type: INT}}]}}
"""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """All that a node logs, as it logs it."""
    written = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    telemetry.configure_logging("DEBUG", telemetry.LogFormat.LINE, role="node", stream=written)
    yield written
    root.handlers[:], root.level = handlers, level


def traces(folder: Path) -> list[str]:
    """Files that hold the secret."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


async def answers_of(url: str) -> str:
    """What everybody may ask."""
    texts = []
    async with aiohttp.ClientSession() as session:
        for path in ("/status", "/tables", "/tables/orders", "/tables/orders/manifest", "/segments/orders/metadata"):
            async with session.get(url + path) as answer:
                texts.append(await answer.text())
    return "\n".join(texts)


async def test_an_apply_with_credentials_leaves_no_trace_of_them(
    start_node: StartNode, tmp_path: Path, log: io.StringIO
) -> None:
    node = await start_node()
    async with aiohttp.ClientSession() as session:
        for uri in URIS:
            for field in FIELDS:
                for text in (manifest(field, uri), manifest(field, uri) + "  broken: [", manifest(field, uri)[:-30]):
                    async with session.post(f"{node.url}/apply", data=text) as answer:
                        body = await answer.text()
                        assert answer.status == 400, (uri, field, body)
                        assert SECRET not in body, (uri, field)
    assert SECRET not in await answers_of(node.url)
    assert traces(tmp_path) == []
    assert SECRET not in log.getvalue()
    assert log.getvalue(), "something was logged"


async def test_a_table_of_before_is_refused_by_all_roles_without_a_trace(
    start_node: StartNode, tmp_path: Path, log: io.StringIO
) -> None:
    """It was accepted once: the metastore holds it, and nothing else shows it."""
    document: dict[str, Any] = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "orders"},
        "spec": {"deepStore": {"uri": URIS[0]}, "schema": {"fields": [{"name": "a", "type": "INT"}]}},
    }
    (tmp_path / "node").mkdir()
    metastore = SqliteMetastore(tmp_path / "node" / METASTORE_FILE)
    put_table(metastore, from_stored(document))
    metastore.close()
    node = await start_node()
    record = {"name": "s", "crc": 1, "sizeBytes": 1, "totalDocs": 1, "url": f"{URIS[0]}/orders_OFFLINE/s@1.mseg"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{node.url}/segments/orders/publish", json={"records": [record]}) as answer:
            assert SECRET not in await answer.text()
        async with session.delete(f"{node.url}/tables/orders/") as answer:
            assert SECRET not in await answer.text()
    assert SECRET not in await answers_of(node.url)
    assert SECRET not in log.getvalue()


@pytest.mark.parametrize("uri", URIS)
def test_no_deep_store_is_opened_with_credentials(uri: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        DeepStore(uri)
    assert SECRET not in str(refused.value)
