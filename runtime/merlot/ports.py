"""Free ports, for programs that take the port to listen on as an argument."""

from __future__ import annotations

import itertools
import os
import socket
from typing import Final

FIRST: Final = 10_240
LAST: Final = 32_767
"""Linux takes the ports of outgoing connections from those above (`ip_local_port_range`): a port chosen up there may be
somebody's connection by the time its program listens."""

_offsets = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """Return a port that nobody listens on, on any IPv4 address. Raise OSError if there is none.

    Calls of one process return different ports, and processes begin at different places of the range, so two programs
    that choose at the same time choose different ports.
    """
    size = LAST - FIRST + 1
    for offset in itertools.islice(_offsets, size):
        port = FIRST + offset % size
        if _is_free(port):
            return port
    raise OSError(f"no port is free range={FIRST}-{LAST}")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
