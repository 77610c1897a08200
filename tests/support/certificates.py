"""Certificate files of a process, signed by CAs that tests make, and changed as cert-manager and Kubernetes do it."""

from __future__ import annotations

import os
import ssl
from datetime import datetime
from itertools import count
from pathlib import Path

import trustme

from merlot.security.tls import TlsFiles, TlsVersion

HOSTS = ("localhost", "127.0.0.1")


class CertificateFolder:
    """Folder with `tls.crt`, `tls.key` and `ca.crt`, as a mounted Secret: links through `..data` to a folder that is
    exchanged as a whole."""

    def __init__(self, folder: Path, *, names: tuple[str, ...] = ("broker",), ca: trustme.CA | None = None) -> None:
        self.folder = folder
        self.ca = ca or trustme.CA()
        self._names = names
        self._numbers = count()
        folder.mkdir(parents=True, exist_ok=True)
        self.renew()
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(Path("..data") / name)

    def renew(
        self, *, ca: trustme.CA | None = None, trusted: tuple[trustme.CA, ...] = (), ends: datetime | None = None
    ) -> None:
        """Exchange all files: a new leaf by `ca`, which is the former one unless given, and these CAs to trust, or that
        one alone."""
        self.ca = ca or self.ca
        leaf = self.ca.issue_cert(*HOSTS, *self._names, not_after=ends)
        bundle = b"".join(authority.cert_pem.bytes() for authority in trusted or (self.ca,))
        self.exchange(leaf.private_key_pem.bytes(), b"".join(pem.bytes() for pem in leaf.cert_chain_pems), bundle)

    def exchange(self, key: bytes, cert: bytes, bundle: bytes) -> None:
        """Put these contents in place of all files, at once."""
        version = self.folder / f"..{next(self._numbers)}"
        version.mkdir()
        (version / "tls.key").write_bytes(key)
        (version / "tls.crt").write_bytes(cert)
        (version / "ca.crt").write_bytes(bundle)
        link = self.folder / "..next"
        link.symlink_to(version.name)
        os.replace(link, self.folder / "..data")

    def files(self, *, requires_clients: bool = False, least: TlsVersion = TlsVersion.TLS_1_3) -> TlsFiles:
        """Return the paths."""
        return TlsFiles(
            cert=self.folder / "tls.crt",
            key=self.folder / "tls.key",
            ca=self.folder / "ca.crt",
            requires_clients=requires_clients,
            least_version=least,
        )

    def options(self) -> list[str]:
        """Return the options of a role."""
        files = self.files()
        return ["--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca)]


def client_of(*authorities: trustme.CA, shows: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts these CAs, and shows a certificate if one is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for authority in authorities:
        authority.configure_trust(context)
    if shows is not None:
        shows.configure_cert(context)
    return context
