"""Processes of roles, as other tests start them."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.processes import RoleProcess

pytestmark = pytest.mark.cluster


def test_a_process_whose_port_was_taken_before_it_started_moves_to_another(tmp_path: Path, zookeeper: str) -> None:
    process = RoleProcess(tmp_path, "minion", ["minion", "--zk", zookeeper])
    taken = urlsplit(process.url).port
    assert taken is not None
    with socket.create_server(("127.0.0.1", taken)):
        process.start()
        try:
            process.wait_ready()
            assert urlsplit(process.url).port != taken
        finally:
            process.kill()
    assert "cannot listen" in process.tail()
