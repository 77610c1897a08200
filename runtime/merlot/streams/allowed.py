"""Hosts that a Table may have servers connect to (brokers, schema registries, token endpoints), and folders that it may
have them read.

The author of a Table need not be its servers' operator. A Table can name a Secret that its author cannot read, and
servers send the Secret's keys to any host that the Table names. The outcome of a connection also reveals which ports of
the cluster's network answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from merlot.errors import InvalidInputError
from merlot.spec.stream import StreamIngestion
from merlot.streams.folders import AllowedFolders, PlaceNotAllowedError

EVERY_HOST: Final = "*"
BROKERS: Final = ("bootstrap.servers", "metadata.broker.list")
BROKER_PORT: Final = 9092
PORTS: Final = {"http": 80, "https": 443}
HINT: Final = "whoever runs Merlot may allow more by --stream-hosts (streams.hosts of the chart)"
_HOST: Final = re.compile(r"(?:([A-Za-z_]+)://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
"""Pattern of a broker, or of the host and port of a URL. A client may read a text with other characters differently."""
_PATTERN: Final = re.compile(r"([A-Za-z0-9._*?-]+|\[[0-9A-Fa-f:.]+\])(:([0-9*?]{1,5}))?")


@dataclass(frozen=True, slots=True)
class AllowedStreams:
    """Allowed hosts and folders. `hosts` are patterns of host:port with * and ?; a pattern without a port stands for
    all ports of a host. Servers may read streams of files below `folders`."""

    hosts: tuple[str, ...] = (EVERY_HOST,)
    folders: AllowedFolders = field(default_factory=AllowedFolders)

    def __post_init__(self) -> None:
        """Raise InvalidInputError if a pattern is malformed."""
        for pattern in self.hosts:
            if _PATTERN.fullmatch(pattern) is None:
                raise InvalidInputError(f"not a host, or host:port, with * and ? got={pattern!r}")

    def check(self, declared: StreamIngestion) -> None:
        """Raise PlaceNotAllowedError unless a Table may consume this stream."""
        for path, problem in self.problems_of(declared):
            raise PlaceNotAllowedError(f"stream.{path}: {problem}")

    def problems_of(self, declared: StreamIngestion) -> Iterator[tuple[str, str]]:
        """Yield the path below `stream` of each field that names a host or folder that is not allowed, and the
        problem."""
        if declared.type == "files" and declared.topic and (problem := self.folders.problem_of(declared.topic)):
            yield "topic", problem
        if EVERY_HOST in self.hosts:
            return
        if "." in declared.type:
            yield "type", f"which hosts the stream {declared.type} names is not known, so all must be allowed; {HINT}"
        for path, host in _hosts_of(declared):
            if host is None:
                yield path, "must be host:port, or a list of them with commas"
            elif not any(_matches(pattern, host) for pattern in self.hosts):
                yield path, f"host is not allowed host={host}: it must be {' or '.join(self.hosts) or 'none'}; {HINT}"


def _matches(pattern: str, host: str) -> bool:
    if _PATTERN.fullmatch(pattern)[2] is None:  # type: ignore[index]
        host = host.rpartition(":")[0]
    return fnmatchcase(host.lower(), pattern.lower().replace("[", "[[]"))


def _hosts_of(declared: StreamIngestion) -> Iterator[tuple[str, str | None]]:
    """Yield path and host:port of each host; None where it cannot be determined."""
    for name, value in declared.properties.items():
        if name in BROKERS:
            yield from (
                (f"properties.{name}", _broker_address(broker)) for broker in value.split(",") if broker.strip()
            )
        elif name.endswith(".url"):
            yield f"properties.{name}", _url_address(value)
    if declared.decoder.schema_registry is not None:
        yield "decoder.schemaRegistry", _url_address(declared.decoder.schema_registry)


def _broker_address(text: str) -> str | None:
    match = _HOST.fullmatch(text.strip())
    return None if match is None else f"{match[2]}:{match[3] or BROKER_PORT}"


def _url_address(url: str) -> str | None:
    scheme, _, rest = url.partition("://")
    authority = urlsplit(url).netloc
    match = _HOST.fullmatch(authority)
    if match is None or match[1] is not None or scheme not in PORTS or not rest.startswith(authority):
        return None
    return f"{match[2]}:{match[3] or PORTS[scheme]}"
