"""A ZooKeeper that speaks TLS alone and wants certificates, as `secureClientPort` of 3.5 and later does."""

from __future__ import annotations

import contextlib
import gc
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from tests.support.certificates import CertificateFolder

from merlot.errors import UnavailableError
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.ports import free_port
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot_spark.jvm import java
from merlot_spark.zookeeper import JARS

pytestmark = [
    pytest.mark.cluster,
    # Kazoo leaves the socket of a failed handshake to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]
CONFIG = """tickTime=500
dataDir={folder}/data
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
admin.enableServer=false
ssl.keyStore.location={folder}/own.pem
ssl.trustStore.location={folder}/ca.pem
ssl.clientAuth=need
ssl.hostnameVerification=false
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def hosts(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the ZooKeeper, whose certificate is for localhost."""
    folder, port = tmp_path_factory.mktemp("zookeeper"), free_port()
    leaf = authority.issue_cert("localhost")
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)  # ZooKeeper reads no key in OpenSSL's own form
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + leaf.cert_chain_pems[0].bytes()
    (folder / "own.pem").write_bytes(own)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "zoo.cfg").write_text(CONFIG.format(folder=folder, port=port))
    jars = Path(pyspark.__file__).parent / "jars"
    path = ":".join(str(jar) for prefix in (*JARS, "netty-") for jar in sorted(jars.glob(f"{prefix}*.jar")))
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [str(java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", path, main, str(folder / "zoo.cfg")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: listens(port))
        yield f"localhost:{port}/secret/chroot"
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def open_with(hosts: str) -> Iterator[Callable[..., ZooKeeperMetastore]]:
    sessions: list[ZooKeeperMetastore] = []

    def open_session(folder: CertificateFolder | None, patience_s: float = 1.0) -> ZooKeeperMetastore:
        files = None if folder is None else folder.files()
        sessions.append(ZooKeeperMetastore(hosts, operation_timeout_s=patience_s, tls=files))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()
    gc.collect()


def test_a_session_needs_the_cas_certificate(
    authority: trustme.CA,
    open_with: Callable[..., ZooKeeperMetastore],
    tmp_path: Path,
) -> None:
    folder = CertificateFolder(tmp_path / "ours", ca=authority)

    store = open_with(folder, PATIENCE_S)
    store.create("/TABLES/a", b"1")
    assert [node.data for node in store.get_many(["/TABLES/a"]) if node is not None] == [b"1"]
    stranger = CertificateFolder(tmp_path / "stranger")
    with pytest.raises(UnavailableError):
        open_with(stranger)
    stranger.renew(trusted=(authority,))
    with pytest.raises(UnavailableError):
        open_with(stranger)
    with pytest.raises(UnavailableError):
        open_with(None)
