"""What images/Dockerfile copies before the rest of the code is enough for what it runs there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_kernels_are_compiled_without_the_rest_of_the_code(tmp_path: Path) -> None:
    text = (ROOT / "images" / "Dockerfile").read_text()
    stage = text.split(" AS kernels\n")[1].split("\nFROM ")[0]
    for line in re.findall(r"^COPY (.*)$", stage.replace("\\\n", " "), re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            _copy(ROOT / source, tmp_path / target.lstrip("/"), is_folder_given=target.endswith("/"))
    command = [sys.executable, "-S", "-c", _IMPORTS, str(tmp_path / "code"), *_packages()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


_IMPORTS = "import sys; sys.path[:0] = sys.argv[1:]; from merlot.kernels import warm; print(warm.__file__)"
"""Without site, which would put the project's own folders on the path."""


def _packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


def _copy(source: Path, target: Path, *, is_folder_given: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
        return
    if is_folder_given:
        target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
