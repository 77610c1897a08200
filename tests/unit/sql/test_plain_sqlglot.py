"""What `sqlglotc` compiles beside sqlglot's sources is left alone, or named where that is too late."""

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import sqlglot

from merlot.testing.patience import PATIENCE_S


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A folder with a sqlglot whose compiled parser does not load."""
    package = tmp_path / "sqlglot"
    package.mkdir()
    for entry in Path(sqlglot.__file__).parent.iterdir():
        if entry.name != "__pycache__" and entry.suffix != ".so":
            (package / entry.name).symlink_to(entry)
    (package / f"parser{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    return tmp_path


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.timeout(PATIENCE_S)
def test_sources_are_imported_beside_compiled_modules(compiled: Path) -> None:
    ran = run(compiled, "from merlot.sql.parse import parse\nprint(parse('SELECT a FROM t').table)")
    assert (ran.stdout, ran.stderr) == ("t\n", "")


@pytest.mark.timeout(PATIENCE_S)
def test_a_compiled_parser_that_is_there_already_is_named(compiled: Path) -> None:
    ran = run(
        compiled,
        "import types; module = types.ModuleType('sqlglot.parser'); module.__file__ = 'parser.so'\n"
        "sys.modules['sqlglot.parser'] = module\nimport merlot.sql.parse",
    )
    assert ran.stderr.splitlines()[-1].startswith("ImportError: sqlglot is imported in its compiled form")
