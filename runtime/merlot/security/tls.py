"""TLS of a process: its certificate, its CAs, and contexts that follow the files when these change.

Files are looked at when a handshake begins, at most once a second. Handshakes use what was read last; running
connections go on. A certificate and a key may be seen half-changed: what was read before stays until all files can be
read together. A connection is made with the context of its moment, so that neither a certificate nor a ticket of an
earlier CA outlives a change. Safe on every thread: gRPC asks on its own.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from merlot.errors import InvalidInputError
from merlot.security.expiry import ends_at_s
from merlot.telemetry import TLS_CERTIFICATE_SECONDS, TLS_RELOADS

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Shortest time between two looks at the files."""
MAX_FILE_BYTES: Final = 4 << 20
HANDSHAKE_S: Final = 10.0
"""Time that a client has for its handshake."""

CLIENT_VARIABLES: Final = ("MERLOT_CA", "MERLOT_CERT", "MERLOT_KEY")
"""Environment variables of commands and jobs: CAs, certificate and key."""

_Stamp = tuple[tuple[int, int, int], ...]


class TlsVersion(StrEnum):
    """Least version of TLS that is spoken."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


_VERSIONS: Final = {TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of a process."""

    cert: Path
    """Certificate of the process, followed by the intermediate ones."""
    key: Path
    """Private key of the certificate, without a passphrase."""
    ca: Path
    """CAs that sign the certificates of peers: servers that it calls, and clients that show one."""
    requires_clients: bool = False
    """True if clients of HTTP and gRPC have to show a certificate. Brokers always have to, to servers."""
    least_version: TlsVersion = TlsVersion.TLS_1_3


@dataclass(frozen=True, slots=True)
class Pem:
    """Contents of the files."""

    cert: bytes
    key: bytes
    ca: bytes


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Contents of the files at one moment, and contexts made of them."""

    stamp: _Stamp
    pem: Pem
    public: ssl.SSLContext
    """For ports that any client may call."""
    mutual: ssl.SSLContext
    """For ports that only peers may call."""
    client: ssl.SSLContext
    ends_at_s: float


class Certificates:
    """Contexts of the process's files. Raise InvalidInputError if they cannot be read at the start."""

    def __init__(self, files: TlsFiles, *, now: Callable[[], float] = time.monotonic, look_s: float = LOOK_S) -> None:
        self.files = files
        self._now = now
        self._look_s = look_s
        self._lock = threading.Lock()
        self._refused: str | None = None
        """Reason why the files could not be read at the last look; None if they could."""
        self._loaded = _load(files)
        self._looked_at = now()
        TLS_CERTIFICATE_SECONDS.labels(file=str(files.cert)).set_function(lambda: self.seconds_left)

    def public_context(self) -> ssl.SSLContext:
        """Return the context for a client's new connection to an HTTP port."""
        return self._current().public

    def mutual_context(self) -> ssl.SSLContext:
        """Return the context for a new connection of a peer, which has to show a certificate."""
        return self._current().mutual

    def client_context(self) -> ssl.SSLContext:
        """Return the context for a new connection of this process to another."""
        return self._current().client

    def pem(self) -> Pem:
        """Return the contents of the files. The object is the same until the files change."""
        return self._current().pem

    @property
    def seconds_left(self) -> float:
        """Seconds until the certificate ends; negative once it has."""
        return self._loaded.ends_at_s - time.time()

    def _current(self) -> _Loaded:
        now = self._now()
        if now - self._looked_at >= self._look_s and self._lock.acquire(blocking=False):
            try:
                self._looked_at = now
                self._look()
            finally:
                self._lock.release()
        return self._loaded

    def _look(self) -> None:
        """Read the files if they have changed; keep what there is if they cannot be read."""
        try:
            if _stamp(self.files) == self._loaded.stamp:
                self._refused = None
                return
            loaded = _load(self.files)
        except InvalidInputError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                TLS_RELOADS.labels(outcome="failed").inc()
                _LOG.warning("certificate files changed and are not taken, the former ones stay cause=%s", error)
            return
        self._refused, self._loaded = None, loaded
        TLS_RELOADS.labels(outcome="taken").inc()
        _LOG.info("certificate files read again file=%s days_left=%.1f", self.files.cert, self.seconds_left / 86_400)


class ClientTls:
    """Context of a process that only calls others, by files that may change: a command, a Spark job, the operator.
    Without a file of CAs the system's are trusted, or those of SSL_CERT_FILE."""

    def __init__(self, ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> None:
        self._ca, self._cert, self._key = ca, cert, key
        self._context: ssl.SSLContext | None = None
        self._stamp: _Stamp = ()
        self._looked_at = 0.0

    @classmethod
    def of_environment(cls) -> ClientTls:
        """Take the files from MERLOT_CA, MERLOT_CERT and MERLOT_KEY."""
        return cls(*(Path(os.environ[name]) if os.environ.get(name) else None for name in CLIENT_VARIABLES))

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Raise InvalidInputError if the files cannot be read; once they could
        be, the former context stays."""
        now = time.monotonic()
        if self._context is not None and now - self._looked_at < LOOK_S:
            return self._context
        self._looked_at = now
        try:
            stamp = tuple(_stamp_of(path) for path in (self._ca, self._cert, self._key) if path is not None)
            if self._context is None or stamp != self._stamp:
                self._context, self._stamp = client_context(self._ca, self._cert, self._key), stamp
        except InvalidInputError as error:
            if self._context is None:
                raise
            _LOG.warning("certificate files changed and are not taken, the former ones stay cause=%s", error)
        return self._context


def client_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the context of a command that calls a node: with the system's CAs (or those of SSL_CERT_FILE) unless a
    file is given. Raise InvalidInputError."""
    context = ssl.create_default_context()
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _add_ca(context, ca, _read(ca))
    if (cert is None) != (key is None):
        raise InvalidInputError("a client certificate needs its key, and a key its certificate: give --cert and --key")
    if cert is not None and key is not None:
        _add_chain(context, cert, key)
    return context


def _stamp(files: TlsFiles) -> _Stamp:
    """Return what differs when a file is replaced, by a new file or, in Kubernetes, by another target of a link."""
    return tuple(_stamp_of(path) for path in (files.cert, files.key, files.ca))


def _stamp_of(path: Path) -> tuple[int, int, int]:
    try:
        stat = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _load(files: TlsFiles) -> _Loaded:
    stamp = _stamp(files)
    pem = Pem(*(_read(path) for path in (files.cert, files.key, files.ca)))
    try:
        end = ends_at_s(pem.cert.decode("utf-8", "replace"))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"certificate cannot be used file={files.cert} reason={error}; give the PEM file of the certificate"
        ) from error
    contexts = _server(files, pem.ca, files.requires_clients), _server(files, pem.ca, True), _client(files, pem.ca)
    if _stamp(files) != stamp:
        raise InvalidInputError(f"files change while they are read file={files.cert}; they are read again in a second")
    if end < time.time():
        _LOG.warning("the certificate has ended, clients refuse it: renew it file=%s", files.cert)
    return _Loaded(stamp, pem, *contexts, end)


def _server(files: TlsFiles, ca: bytes, requires_clients: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[files.least_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A ticket would let a client in that the CA of the next handshake no longer vouches for.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    _add_chain(context, files.cert, files.key)
    _add_ca(context, files.ca, ca)
    context.verify_mode = ssl.CERT_REQUIRED if requires_clients else ssl.CERT_OPTIONAL
    return context


def _client(files: TlsFiles, ca: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[files.least_version]
    _add_chain(context, files.cert, files.key)
    _add_ca(context, files.ca, ca)
    return context


def _add_chain(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as error:
        reason = getattr(error, "reason", None) or str(error)
        advice = (
            "the key is of another certificate, give the pair"
            if reason == "KEY_VALUES_MISMATCH"
            else "give PEM files, the key without a passphrase"
        )
        raise InvalidInputError(
            f"certificate cannot be used file={cert} key={key} reason={reason}; {advice}"
        ) from error
    except OSError as error:
        raise _unreadable(Path(str(error.filename or cert)), error) from error


def _no_passphrase() -> bytes:
    raise ssl.SSLError("the key is encrypted")


def _add_ca(context: ssl.SSLContext, ca: Path, pem: bytes) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("utf-8", "replace"))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidInputError(
            f"CA file cannot be used file={ca} reason={reason}; give certificates of CAs in PEM form"
        ) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInputError(f"TLS file is too large file={path} limit={MAX_FILE_BYTES}; give a PEM file")
    return data


def _unreadable(path: Path, error: OSError) -> InvalidInputError:
    return InvalidInputError(f"TLS file cannot be read file={path} reason={error.strerror}; check path and permissions")
