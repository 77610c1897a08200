"""Jars that Maven fetches into build/, once: Pinot's Java clients of 1.2.0 and what they load, and others' own.

All that they declare is 167 jars, of Helix, gRPC and Groovy too: what no client loads is left out by naming the rest.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "pinot-clients-1.2.0"
FETCH_TIMEOUT_S = 300
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
COORDINATES = (
    "com.fasterxml.jackson.core:jackson-annotations:2.12.7",
    "com.fasterxml.jackson.core:jackson-core:2.12.7",
    "com.fasterxml.jackson.core:jackson-databind:2.12.7.1",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.15.2",
    "com.google.guava:guava:33.1.0-jre",
    "com.typesafe.netty:netty-reactive-streams:2.0.4",
    "commons-codec:commons-codec:1.17.0",
    "commons-logging:commons-logging:1.2",
    "io.netty:netty-buffer:4.1.60.Final",
    "io.netty:netty-codec:4.1.60.Final",
    "io.netty:netty-codec-http:4.1.60.Final",
    "io.netty:netty-common:4.1.60.Final",
    "io.netty:netty-handler:4.1.60.Final",
    "io.netty:netty-resolver:4.1.60.Final",
    "io.netty:netty-transport:4.1.60.Final",
    "org.apache.calcite.avatica:avatica-core:1.25.0",
    "org.apache.calcite:calcite-babel:1.37.0",
    "org.apache.calcite:calcite-core:1.37.0",
    "org.apache.calcite:calcite-linq4j:1.37.0",
    "org.apache.commons:commons-configuration2:2.11.0",
    "org.apache.commons:commons-lang3:3.14.0",
    "org.apache.httpcomponents:httpclient:4.5.14",
    "org.apache.httpcomponents:httpcore:4.4.16",
    "org.apache.pinot:pinot-common:1.2.0",
    "org.apache.pinot:pinot-java-client:1.2.0",
    "org.apache.pinot:pinot-jdbc-client:1.2.0",
    "org.apache.pinot:pinot-segment-spi:1.2.0",
    "org.apache.pinot:pinot-spi:1.2.0",
    "org.apache.thrift:libthrift:0.18.1",
    "org.asynchttpclient:async-http-client:2.12.3",
    "org.asynchttpclient:async-http-client-netty-utils:2.12.3",
    "org.reactivestreams:reactive-streams:1.0.3",
    "org.slf4j:slf4j-api:2.0.13",
)
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions>"
    "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
_POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>merlot</groupId><artifactId>clients</artifactId><version>1</version>"
    "<dependencies>{}</dependencies></project>"
)


def compiler() -> str:
    """The java of a JDK, which runs a source file; skips where there is none."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("no java: put a JDK of 17 or later on the PATH")
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False, timeout=60)
    if "jdk.compiler" not in modules.stdout:
        pytest.skip(f"{java} is no JDK, it has no compiler: put a JDK of 17 or later on the PATH")
    return java


def class_path() -> str:
    """Of Pinot's clients and all they load; skips without Maven or without its repository."""
    return fetched(FOLDER, COORDINATES)


def fetched(folder: Path, coordinates: Sequence[str]) -> str:
    """Class path of jars in a folder, fetched if it is not there; skips without Maven or without its repository."""
    if not folder.is_dir():
        _fetch(folder, coordinates)
    return str(folder / "*")


def _fetch(folder: Path, coordinates: Sequence[str]) -> None:
    """Into a folder beside, which becomes the asked one when it is whole."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"no Maven: put mvn on the PATH, it fetches {folder.name}")
    work = folder.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "pom.xml").write_text(_POM.format("".join(_DEPENDENCY.format(*one.split(":")) for one in coordinates)))
    command = [maven, "-q", "-B", "-f", str(work / "pom.xml"), PLUGIN, f"-DoutputDirectory={work / 'jars'}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven took more than {FETCH_TIMEOUT_S} s to fetch {folder.name}: run the test again")
    if done.returncode:
        cause = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stdout[-300:])
        pytest.skip(f"Maven cannot fetch {folder.name}, is its repository reachable? {cause}")
    (work / "jars").rename(folder)
    shutil.rmtree(work)
