"""Modules that a command loads. A prompt that completes words waits for `--help` at each key, and a role keeps whatever
its module imports.
"""

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


NEVER_AT_START = {"cryptography", "datasketches", "duckdb", "grpc", "jwt", "pandas", "pyspark"}
ENGINE_PARTS = {"merlot.kernels", "merlot.query", "merlot.segment", "merlot.sql", "numba"}
OTHERS = {
    "controller": ENGINE_PARTS | {"merlot.broker", "merlot.minion", "merlot.server"},
    "minion": ENGINE_PARTS | {"merlot.broker", "merlot.controller", "merlot.merge", "merlot.server"},
    "broker": {"merlot.controller", "merlot.minion", "merlot.server"},
    "server": {"merlot.broker", "merlot.controller", "merlot.minion"},
    "serve": {"kazoo", "merlot.merge"},
}
"""What each role does without until it has work for it."""


@pytest.mark.parametrize("role", OTHERS)
def test_a_role_loads_only_what_it_needs(role: str) -> None:
    code = f"import sys, merlot.cli.{role}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (NEVER_AT_START | OTHERS[role]) & set(done.stdout.split()) == set()


def test_pyarrow_loads_no_pandas_in_a_role() -> None:
    code = """
import sys
from merlot.cli.processes import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
pa.array([1])
print("pandas" in sys.modules)
print(pa.table({"x": [1]}).to_pandas().x.sum())  # a plugin may still ask for it
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]
