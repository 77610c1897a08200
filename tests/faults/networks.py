"""A network in which each process is a machine of its own, so that packets from one to another can be lost.

Each host is a network namespace, linked to one that forwards packets between all of them and this machine. A rule there
has packets from one address to another vanish without a word; those the other way still arrive. Needs root and `ip`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PREFIX = "10.99"
CLONE_NEWNET = 0x40000000


class Network:
    """A context manager. `here` are addresses of this machine, of which the first is the one that it connects from."""

    def __init__(self, *names: str) -> None:
        """names: of the hosts, up to 200."""
        self._id = f"m{os.getpid() % 100_000}"
        net = f"{PREFIX}.{os.getpid() % 256}"
        self._gate = f"{net}.254"
        self._net = net
        self.here = (f"{net}.1", f"{net}.2")
        self.addresses = {name: f"{net}.{number}" for number, name in enumerate(names, 3)}
        self._hub = f"{self._id}-hub"

    def namespace(self, name: str) -> str:
        """The network namespace of a host."""
        return f"{self._id}-{name}"

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything; links go with their namespaces."""
        for name in (*map(self.namespace, self.addresses), self._hub):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)

    @contextmanager
    def lost(self, senders: str, receivers: str) -> Iterator[None]:
        """Lose what one address sends to another."""
        rule = ("from", senders, "to", receivers, "blackhole")
        _ip("-n", self._hub, "rule", "add", *rule)
        try:
            yield
        finally:
            _ip("-n", self._hub, "rule", "del", *rule)

    def _build(self) -> None:
        _ip("netns", "add", self._hub)
        _in(self._hub, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        link = f"{self._id}-here"
        _ip("link", "add", "name", "here", "netns", self._hub, "type", "veth", "peer", "name", link)
        _ip("link", "set", "dev", link, "up")
        for address in self.here:
            _ip("addr", "add", f"{address}/32", "dev", link)
        _ip("route", "add", self._gate, "dev", link)
        _ip("route", "add", f"{self._net}.0/24", "via", self._gate, "src", self.here[0])
        self._join("here", *self.here)
        for name, address in self.addresses.items():
            namespace = self.namespace(name)
            _ip("netns", "add", namespace)
            _ip(
                "link",
                "add",
                "name",
                name,
                "netns",
                self._hub,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                namespace,
            )
            self._join(name, address)
            for device in ("lo", "eth0"):
                _ip("-n", namespace, "link", "set", "dev", device, "up")
            _ip("-n", namespace, "addr", "add", f"{address}/32", "dev", "eth0")
            _ip("-n", namespace, "route", "add", self._gate, "dev", "eth0")
            _ip("-n", namespace, "route", "add", "default", "via", self._gate)

    def _join(self, link: str, *addresses: str) -> None:
        _ip("-n", self._hub, "link", "set", "dev", link, "up")
        _ip("-n", self._hub, "addr", "add", f"{self._gate}/32", "dev", link)
        for address in addresses:
            _ip("-n", self._hub, "route", "add", f"{address}/32", "dev", link)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _in(namespace: str, *command: str) -> None:
    _ip("netns", "exec", namespace, *command)


@functools.cache
def can_part() -> bool:
    """Whether this machine lets a test make a network whose packets are lost by a rule."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        with Network("probe") as network, network.lost(network.here[0], network.addresses["probe"]):
            return True
    except (subprocess.CalledProcessError, OSError):
        return False


def move_to(namespace: str) -> None:
    """Have this process, which has one thread, and its children live in a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
