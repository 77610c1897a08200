"""A node consumes what only those may read who show a password or a certificate, over TLS, by what is in a Secret."""

import asyncio
import datetime as dt
import ipaddress
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.contracts.streams.kafka_brokers import CONTROL, NO_CONTROL, KafkaBrokers, kafka_brokers
from tests.node.nodes import SHORT_WAITS
from tests.support.events import COUNTS, event, events_manifest

from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.ports import free_port
from merlot.testing.patience import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not CONTROL, reason=NO_CONTROL)]

TOPIC = "events"
NUM_EVENTS = 500
SECRET = "merlot-events"
PASSWORD = secrets.token_hex(8)
HOUR = dt.timedelta(hours=1)
JAAS = "org.apache.kafka.common.security"


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.pem = _pem(made.sign(self._key, hashes.SHA256()))

    def issue(self, name: str) -> tuple[str, str]:
        """A key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key).add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        private = key.private_bytes(encoding, form, serialization.NoEncryption()).decode()
        return private, _pem(made.sign(self._key, hashes.SHA256()))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        return builder.not_valid_before(now - HOUR).not_valid_after(now + HOUR)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@dataclass(frozen=True)
class Guarded:
    """A Kafka with a topic, and how it may be read."""

    sasl: str
    mutual: str
    bundle: str
    certificate: tuple[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority("brokers")
    with kafka_brokers(folder / "brokers") as brokers:
        sasl, mutual = f"localhost:{free_port()}", f"localhost:{free_port()}"
        brokers.set(1, listeners(brokers, folder, authority, sasl, mutual))
        admin = AdminClient({"bootstrap.servers": brokers.servers})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        altered = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("merlot", scram, PASSWORD.encode())])
        altered["merlot"].result(PATIENCE_S)
        brokers.create_topic(TOPIC, 1)
        producer = Producer({"bootstrap.servers": brokers.servers})
        for number in range(NUM_EVENTS):
            producer.produce(TOPIC, event(number))
        assert producer.flush(PATIENCE_S) == 0
        bundle = Authority("somebody else").pem + authority.pem
        yield Guarded(sasl, mutual, bundle, authority.issue("merlot"))


def listeners(brokers: KafkaBrokers, folder: Path, authority: Authority, sasl: str, mutual: str) -> Mapping[str, str]:
    """Settings of a broker that listens for passwords and for certificates besides."""
    (folder / "broker.pem").write_text("".join(authority.issue("broker")))
    (folder / "ca.pem").write_text(authority.pem)
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    users = f'{JAAS}.plain.PlainLoginModule required user_merlot="{PASSWORD}";'
    return {
        "listeners": f"{brokers.properties(1)['listeners']},SASL://{sasl},MUTUAL://{mutual}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": users,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        "listener.name.mutual.ssl.client.auth": "required",
        **stores,
    }


def manifest(servers: str, **properties: str) -> str:
    table = events_manifest(Path("unused")).model_dump(mode="json", by_alias=True, exclude_unset=True)
    stream = {"type": "kafka", "topic": TOPIC, "secretRef": SECRET}
    shown = {"bootstrap.servers": servers, **{name.replace("_", "."): value for name, value in properties.items()}}
    table["spec"]["ingestion"]["stream"] |= {**stream, "properties": shown}
    return json.dumps(table)


def put_secret(folder: Path, keys: Mapping[str, str]) -> None:
    """As Kubernetes mounts it."""
    (folder / SECRET).mkdir(parents=True, exist_ok=True)
    for name, text in keys.items():
        (folder / SECRET / name).write_text(text)


class Asking:
    """A node over HTTP."""

    def __init__(self, node: EmbeddedNode) -> None:
        self._url = node.url

    async def post(self, path: str, body: str, content_type: str = "application/json") -> Any:
        headers = {"Content-Type": content_type}
        async with (
            aiohttp.ClientSession(self._url, headers=headers) as session,
            session.post(path, data=body) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def counts(self) -> list[int] | None:
        answer = await self.post("/query/sql", json.dumps({"sql": COUNTS}))
        return answer["resultTable"]["rows"][0] if answer.get("resultTable") and not answer["exceptions"] else None

    async def stream(self) -> str:
        async with aiohttp.ClientSession(self._url) as session, session.get("/tables/events/stream") as answer:
            return await answer.text()


async def shows_all(asking: Asking) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await asking.counts() != [NUM_EVENTS] * 3:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def consuming(folder: Path, text: str, keys: Mapping[str, str]) -> AsyncIterator[Asking]:
    """A node with the table and the Secret."""
    put_secret(folder / "secrets", keys)
    node = EmbeddedNode(
        NodeConfig(data_dir=folder / "data", http_port=0, secrets_dir=folder / "secrets", tuning=SHORT_WAITS)
    )
    await node.start()
    try:
        asking = Asking(node)
        await asking.post("/apply", text, "application/yaml")
        yield asking
    finally:
        await node.stop()


@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-512", "certificate"])
async def test_rows_come_by_what_the_secret_holds(how: str, guarded: Guarded, tmp_path: Path) -> None:
    keys = {"ssl.ca.pem": guarded.bundle}
    if how == "certificate":
        text = manifest(guarded.mutual, security_protocol="ssl")
        keys |= dict(zip(("ssl.key.pem", "ssl.certificate.pem"), guarded.certificate, strict=True))
    else:
        text = manifest(guarded.sasl, security_protocol="sasl_ssl", sasl_mechanism=how)
        keys |= {"sasl.username": "merlot", "sasl.password": PASSWORD}
    async with consuming(tmp_path, text, keys) as asking:
        await shows_all(asking)


@pytest.mark.parametrize("wrong", ["sasl.password", "ssl.ca.pem"])
async def test_wrong_secret_is_told_without_what_it_holds(
    wrong: str, guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merlot.streams.kafka.ASK_S", 0.5)
    text = manifest(guarded.sasl, security_protocol="sasl_ssl", sasl_mechanism="PLAIN")
    keys = {"ssl.ca.pem": guarded.bundle, "sasl.username": "merlot", "sasl.password": PASSWORD}
    other = {"sasl.password": "do-not-show", "ssl.ca.pem": Authority("another").pem}[wrong]
    async with consuming(tmp_path, text, {**keys, wrong: other}) as asking:
        async with asyncio.timeout(PATIENCE_S):
            while "refuses access" not in (told := await asking.stream()):
                await asyncio.sleep(0.1)
        assert "do-not-show" not in told
