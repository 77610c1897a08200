"""Java programs over the jars that pyspark brings; compiled by its Janino, so that a JRE without compiler is enough."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from merlot_spark import jvm

COMPILER = ("janino-*.jar", "commons-compiler-*.jar", "slf4j-api-*.jar")
FLAGS = (
    "-Dorg.codehaus.janino.UnitCompiler.defaultTargetVersion=8",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
"""Static methods of interfaces, and what DataSketches' memory looks into."""


def run(source: str, jars: Sequence[str], text: str, folder: Path) -> list[str]:
    """Lines that the class `Oracle` of `source` prints, given `text`. Skips if pyspark has no such jars."""
    pyspark = pytest.importorskip("pyspark")
    beside = Path(pyspark.__file__).parent / "jars"
    found = [next(iter(sorted(beside.glob(pattern))), None) for pattern in (*jars, *COMPILER)]
    if None in found:
        pytest.skip(f"not all of {jars} are beside pyspark")
    (folder / "Oracle.java").write_text(source)
    compiled = ["org.codehaus.janino.SimpleCompiler", str(folder / "Oracle.java"), "Oracle", "main"]
    done = subprocess.run(
        [str(jvm.java()), *FLAGS, "-cp", os.pathsep.join(map(str, found)), *compiled],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
