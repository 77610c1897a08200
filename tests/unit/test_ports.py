"""Ports for programs that are told where to listen: nobody's now, each once, and never one of the system's own."""

import itertools
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from merlot.ports import FIRST, LAST, free_port

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_every_call_returns_another_port_that_can_be_listened_on() -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_somebody_listens_on_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        monkeypatch.setattr("merlot.ports._offsets", itertools.count(taken - FIRST))
        assert free_port() != taken


@pytest.mark.skipif(not RANGE.exists(), reason="only Linux says which ports it takes for connections")
def test_no_port_is_one_that_the_system_may_take_for_a_connection() -> None:
    first, last = map(int, RANGE.read_text().split())
    assert last < FIRST or first > LAST


def test_processes_that_choose_at_the_same_time_choose_different_ports() -> None:
    command = [sys.executable, "-c", "from merlot.ports import free_port\nprint(*(free_port() for _ in range(20)))"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    chosen = [port for child in children for port in child.communicate()[0].split()]
    assert len(set(chosen)) == len(chosen) == 60
