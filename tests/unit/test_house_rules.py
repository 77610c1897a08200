"""Rules of the house that linters do not know."""

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.contracts.functions import page as functions_page
from tests.contracts.ingestion import page as ingestion_page

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "runtime" / "merlot", ROOT / "spark" / "merlot_spark")
FOLDERS = (*PACKAGES, ROOT / "examples" / "demos", ROOT / "tests" / "support")
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py") if not path.name.endswith("_pb2.py"))
MAX_MODULE_LINES = 600
SENDING = re.compile(r"""\b(?:pip install|pipx|uv|uvx)\b[^\n;]*?\s['"]?merlot(?:[-_]\w+)*(?:\[|['"\s`]|==|$)""", re.M)
"""A command that installs `merlot` by its name."""
VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_is_short_named_and_documented() -> None:
    assert len(SOURCES) > 500
    texts = {name_of(path): path.read_text() for path in SOURCES}
    assert [name for name, text in texts.items() if len(text.splitlines()) > MAX_MODULE_LINES] == []
    assert [name_of(path) for path in SOURCES if path.stem in VAGUE_NAMES] == []
    silent = [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert silent == [], "a module opens with what it owns"


def test_package_docstrings_state_the_threading_rule() -> None:
    silent = []
    for init in (path for path in SOURCES if path.name == "__init__.py" and path.parent not in PACKAGES):
        docstring = (ast.get_docstring(ast.parse(init.read_text())) or "").lower()
        parent = init.parent.parent / "__init__.py"
        is_nested = parent in SOURCES and init.parent.parent not in PACKAGES
        if not is_nested and not any(word in docstring for word in ("thread", "loop")):
            silent.append(name_of(init))
    assert silent == []


def test_no_text_sends_anybody_to_another_projects_package() -> None:
    """`merlot` on PyPI is somebody else's: extras are installed from a checkout (`merlot.extras`)."""
    folders = ("charts", "docs", "examples", "images", "operator", "runtime", "spark", "tests")
    endings = {"", ".html", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ".tpl"}
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in endings]
    texts = [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml", *filter(Path.is_file, found)]
    sending = [
        name_of(path) for path in texts if path != Path(__file__) and SENDING.search(path.read_text(errors="replace"))
    ]
    assert sending == []


@pytest.mark.parametrize(
    "command",
    ["pip install merlot", "pip install 'merlot[engine]'", "pip install -U merlot==1", "uv add merlot-client"],
)
def test_commands_that_install_by_name_are_recognized(command: str) -> None:
    assert SENDING.search(f"run `{command}`")
    assert not SENDING.search("pip install -e '.[engine]' in a checkout of Merlot; pip install ./merlot.whl")


def test_no_package_shadows_the_standard_library_operator() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("page", [functions_page, ingestion_page], ids=["functions", "ingestion"])
def test_generated_pages_say_what_the_code_says(page: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """CRDs and plans have tests of their own, in tests/unit/spec and tests/plans."""
    assert page.main(["--check", str(ROOT / "docs")]) == 0, capsys.readouterr().err
