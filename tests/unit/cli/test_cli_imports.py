"""What a command loads that only shows help: a prompt that completes words waits for it at each key."""

import subprocess
import sys

import pytest

ENGINE = {"aiohttp", "asyncio", "duckdb", "http.client", "numba", "numpy", "pyarrow", "ssl", "yaml"}
"""Not pydantic, which typer itself loads to call a command."""
SHOW = "import sys; from merlot.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["query", "--help"], ["get", "--help"]])
def test_help_loads_neither_the_engine_nor_the_network(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SHOW, *arguments], capture_output=True, text=True, check=True)
    assert ENGINE & set(done.stderr.split()) == set()
