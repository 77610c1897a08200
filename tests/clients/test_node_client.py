"""The npm package `pinot-client`, 0.3.0, works against a node as it does against Pinot."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.clients.flights_node import Address

pytestmark = pytest.mark.timeout(300)  # the first run on a machine fetches the package

FOLDER = Path(__file__).resolve().parents[2] / "build" / "pinot-client-0.3.0"
PROGRAM = Path(__file__).with_name("pinot_client.js")
FETCH_TIMEOUT_S = 120


def package() -> Path:
    """Its folder, fetched by npm if it is not there; skips without npm, or without its registry."""
    found = FOLDER / "node_modules" / "pinot-client"
    if not found.is_dir():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm: put it on the PATH, it fetches pinot-client")
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(FOLDER)]
        try:
            done = subprocess.run(
                [*command, "pinot-client@0.3.0"], capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm took more than {FETCH_TIMEOUT_S} s to fetch pinot-client: run the test again")
        if done.returncode:
            pytest.skip(f"npm cannot fetch pinot-client, is its registry reachable? {done.stderr.strip()[-300:]}")
    return found


@pytest.fixture(scope="module")
def told(node: Address) -> dict[str, Any]:
    """What the program printed."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node.js: put node on the PATH")
    command = [program, str(PROGRAM), str(package()), f"{node.host}:{node.port}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("found_by", ["brokers", "controller"])
def test_brokers_are_found_and_answer(told: dict[str, Any], found_by: str) -> None:
    assert told[found_by] == {
        "dataSchema": {"columnNames": ["carrier", "miles"], "columnDataTypes": ["STRING", "DOUBLE"]},
        "rows": [["UA", 63000.0], ["DL", 60000.0]],
    }


def test_errors_have_pinots_code(told: dict[str, Any]) -> None:
    assert "[CODE 710] UNKNOWN_COLUMN" in told["error"]
