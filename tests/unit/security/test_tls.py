"""Certificates: read at the start, read again when files change, never half."""

from __future__ import annotations

import contextlib
import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.support.certificates import CertificateFolder, client_of

from merlot.errors import InvalidInputError
from merlot.security.expiry import ends_at_s
from merlot.security.tls import Certificates, TlsVersion, client_context
from merlot.telemetry import REGISTRY


class Times:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder(tmp_path / "tls")


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """Return the server's end of a connection whose handshake is over; raise what either end raises."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    )
    done = [False, False]
    for _ in range(4):
        for number, end in enumerate(ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                done[number] = True
    assert done == [True, True]
    return ends[1]


def leaf_of(server: ssl.SSLContext, *authorities: trustme.CA) -> int:
    """Serial number of the certificate that a server shows."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_of(*authorities).wrap_bio(down, up, server_hostname="localhost")
    end = server.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for each in (client, end):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def counted(outcome: str) -> float:
    return REGISTRY.get_sample_value("merlot_tls_reloads_total", {"outcome": outcome}) or 0.0


def test_a_renewed_certificate_and_a_new_ca_serve_the_next_handshake(folder: CertificateFolder) -> None:
    times = Times()
    certificates = Certificates(folder.files(), now=times)
    former, taken = folder.ca, counted("taken")
    first = leaf_of(certificates.public_context(), former)
    folder.renew()
    times.now = 0.5
    assert leaf_of(certificates.public_context(), former) == first, "files are looked at once a second"
    times.now = 1.0
    assert leaf_of(certificates.public_context(), former) != first
    folder.renew(ca=trustme.CA())
    times.now = 2.0
    shake(certificates.mutual_context(), client_of(folder.ca, shows=folder.ca.issue_cert("a")))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake(certificates.mutual_context(), client_of(folder.ca, shows=former.issue_cert("a")))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(certificates.public_context(), client_of(former))
    assert counted("taken") == taken + 2


def test_half_changed_files_leave_the_former_pair(folder: CertificateFolder, caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    certificates = Certificates(folder.files(), now=times)
    first = leaf_of(certificates.public_context(), folder.ca)
    leaf, failed = folder.ca.issue_cert("localhost"), counted("failed")
    bundle = (folder.folder / "ca.crt").read_bytes()
    cert, key = leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()
    halves = [
        ((folder.folder / "tls.key").read_bytes(), cert, bundle),
        (key, cert[: len(cert) // 2], bundle),
        (key, cert, b""),
        (b"", b"", b""),
    ]
    with caplog.at_level(logging.INFO, "merlot.security"):
        for half in halves:
            folder.exchange(*half)
            for _ in range(3):
                times.now += 1
                assert leaf_of(certificates.public_context(), folder.ca) == first
        assert len(caplog.records) == len(halves), "one line for each change, however often it is looked at"
        folder.exchange(key, cert, bundle)
        times.now += 1
        assert leaf_of(certificates.public_context(), folder.ca) != first
    assert counted("failed") == failed + len(halves)
    assert "the key is of another certificate" in caplog.text
    assert "read again" in caplog.records[-1].getMessage()


def test_missing_files_leave_the_former_pair(folder: CertificateFolder) -> None:
    times = Times()
    certificates = Certificates(folder.files(), now=times)
    before = certificates.pem()
    (folder.folder / "..data").unlink()
    times.now = 1
    assert certificates.pem() is before


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("tls.crt", b"", "no CERTIFICATE block"),
        ("tls.crt", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
        ("tls.key", b"", "key without a passphrase"),
        ("ca.crt", b"not a certificate", "give certificates of CAs in PEM form"),
        ("ca.crt", bytes(5 << 20), "too large"),
        ("tls.key", None, "No such file"),
    ],
)
def test_errors_at_the_start_name_the_file_and_what_to_do(
    folder: CertificateFolder, file: str, content: bytes | None, words: str
) -> None:
    path = folder.folder / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=words) as raised:
        Certificates(folder.files())
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(folder: CertificateFolder) -> None:
    path = folder.folder / "tls.key"
    key = load_pem_private_key(path.read_bytes(), None)
    path.unlink()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(InvalidInputError, match="without a passphrase"):
        Certificates(folder.files())


def test_the_end_of_the_certificate_is_a_metric(folder: CertificateFolder, caplog: pytest.LogCaptureFixture) -> None:
    end = datetime.now(UTC) + timedelta(days=3)
    folder.renew(ends=end)
    certificates = Certificates(folder.files())
    left = REGISTRY.get_sample_value("merlot_tls_certificate_seconds_left", {"file": str(certificates.files.cert)})
    assert left == pytest.approx(3 * 86_400, abs=60)
    assert caplog.records == []
    folder.renew(ends=datetime.now(UTC) - timedelta(days=3))
    assert Certificates(folder.files()).seconds_left < 0
    assert "renew it" in caplog.text


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2199])
def test_ends_are_read_as_an_independent_reader_reads_them(year: int) -> None:
    leaf = trustme.CA().issue_cert("x", not_after=datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC))
    pem = leaf.cert_chain_pems[0].bytes()
    expected = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    assert ends_at_s(pem.decode()) == expected


def test_every_cut_certificate_is_an_error() -> None:
    leaf = trustme.CA().issue_cert("x")
    der = ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())
    for length in range(0, 200, 7):
        with pytest.raises(InvalidInputError):
            ends_at_s(ssl.DER_cert_to_PEM_cert(der[:length]))


def test_clients_need_a_certificate_where_peers_call(folder: CertificateFolder) -> None:
    certificates = Certificates(folder.files())
    trusting = client_of(folder.ca)
    assert shake(certificates.public_context(), trusting).getpeercert() is None
    shown = shake(certificates.public_context(), client_of(folder.ca, shows=folder.ca.issue_cert("me")))
    assert ("DNS", "me") in shown.getpeercert()["subjectAltName"]
    for context in (certificates.mutual_context(), Certificates(folder.files(requires_clients=True)).public_context()):
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake(context, trusting)


def test_tls_1_2_is_spoken_only_if_allowed(folder: CertificateFolder) -> None:
    old = client_of(folder.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="PROTOCOL"):
        shake(Certificates(folder.files()).public_context(), old)
    allowing = Certificates(folder.files(least=TlsVersion.TLS_1_2))
    assert shake(allowing.public_context(), old).version() == "TLSv1.2"


def test_a_command_shows_a_certificate_with_its_key_or_none(folder: CertificateFolder) -> None:
    files = folder.files()
    server = Certificates(files).mutual_context()
    shake(server, client_context(files.ca, files.cert, files.key))
    with pytest.raises(InvalidInputError, match="--cert and --key"):
        client_context(files.ca, files.cert, None)
    with pytest.raises(InvalidInputError, match="check path"):
        client_context(Path("/no/such"), None, None)
