"""Open a metastore by its URL: `zk://host:port,host:port/chroot` or `sqlite:///absolute/path`."""

from __future__ import annotations

from merlot.errors import InvalidInputError
from merlot.metastore.protocol import Metastore
from merlot.security.tls import TlsFiles


def connect(url: str, *, tls: TlsFiles | None = None) -> Metastore:
    """Open a session; `tls` is for a ZooKeeper that speaks it.

    Raise InvalidInputError for a malformed URL, UnavailableError if the store does not answer in
    time."""
    scheme, separator, rest = url.partition("://")
    if separator and rest and scheme == "zk":
        from merlot.metastore.zookeeper import ZooKeeperMetastore

        return ZooKeeperMetastore(rest, tls=tls)
    if separator and rest and scheme == "sqlite":
        from merlot.metastore.sqlite import SqliteMetastore

        return SqliteMetastore(rest)
    raise InvalidInputError(f"metastore must be zk://host:port/chroot or sqlite:///path got={url!r}")
