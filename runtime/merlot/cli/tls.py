"""TLS options: of the roles, the same in each, and of the commands that call a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from merlot.errors import InvalidInputError
from merlot.security.peer_names import BROKERS
from merlot.security.tls import Certificates, TlsFiles, TlsVersion

PANEL: Final = "TLS"


def _option(flag: str, text: str, *, metavar: str | None = None, shown_default: str | bool = True) -> Any:
    return typer.Option(
        flag,
        envvar=f"MERLOT_{flag.partition('/')[0].removeprefix('--').replace('-', '_').upper()}",
        help=text,
        metavar=metavar,
        show_default=shown_default,
        rich_help_panel=PANEL,
    )


def of_tls(
    *,
    tls_cert: Annotated[
        Path | None,
        _option(
            "--tls-cert",
            "PEM file of the certificate, intermediate ones after it. With it every port speaks TLS alone. The three "
            "files are read again when they change.",
            metavar="FILE",
            shown_default="no TLS",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, _option("--tls-key", "PEM file of its key, without a passphrase.", metavar="FILE")
    ] = None,
    tls_ca: Annotated[
        Path | None,
        _option("--tls-ca", "PEM file of the CAs that sign the certificates of the other processes.", metavar="FILE"),
    ] = None,
    tls_min_version: Annotated[
        TlsVersion, _option("--tls-min-version", "Least version of TLS; gRPC takes 1.2 in any case.")
    ] = TlsVersion.TLS_1_3,
    tls_require_clients: Annotated[
        bool,
        _option(
            "--tls-require-clients/--tls-any-clients",
            "Take only clients that show a certificate of these CAs, probes and Prometheus included.",
        ),
    ] = False,
) -> Certificates | None:
    """Return the certificates that the options of a role name; None if they name none."""
    files = (tls_cert, tls_key, tls_ca)
    if tls_cert is None or tls_key is None or tls_ca is None:
        if any(file is not None for file in files) or tls_require_clients:
            flags = ("--tls-cert", "--tls-key", "--tls-ca")
            missing = ", ".join(flag for flag, file in zip(flags, files, strict=True) if file is None)
            raise typer.BadParameter(f"TLS needs three files, and {missing} is missing: give all of them, or none")
        return None
    return Certificates(
        TlsFiles(
            cert=tls_cert,
            key=tls_key,
            ca=tls_ca,
            requires_clients=tls_require_clients,
            least_version=tls_min_version,
        )
    )


TlsPeers = Annotated[
    str,
    _option(
        "--tls-peers",
        "Names that a certificate must have one of for its holder to send queries: host names or URIs, with *, "
        "separated by commas.",
        metavar="NAMES",
    ),
]
DEFAULT_PEERS: Final = ",".join(BROKERS)
ZooKeeperTls = Annotated[
    bool,
    _option("--zk-tls/--zk-plain", "Speak TLS with ZooKeeper, by the same files; --zk names its secure client port."),
]


def files_for_zookeeper(certificates: Certificates | None, *, is_wanted: bool) -> TlsFiles | None:
    """Return the files to call ZooKeeper with; None to call it without TLS."""
    if not is_wanted:
        return None
    if certificates is None:
        raise InvalidInputError("--zk-tls needs files: give --tls-cert, --tls-key and --tls-ca")
    return certificates.files
