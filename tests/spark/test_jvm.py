"""A Java for Spark and ZooKeeper, on machines with one and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from merlot.errors import UnavailableError
from merlot_spark import jvm
from merlot_spark.zookeeper import ZooKeeper

pytestmark = pytest.mark.cluster


def java_version(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([home / "bin" / "java", *flags, "-version"], capture_output=True, text=True, check=False)


def test_the_bundled_java_takes_sparks_flag_in_both_forms(tmp_path: Path) -> None:
    home = jvm.bundled_home(tmp_path)
    flags = ["--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector", "-Dspace=a b"]
    answer = java_version(home, *flags)
    assert answer.returncode == 0, answer.stderr
    assert "jdk.incubator.vector" not in answer.stderr
    assert jvm._major(answer.stderr) >= jvm.LEAST_MAJOR
    assert java_version(home, "--add-modules=no.such.module").returncode != 0, "other modules are still asked for"


def test_a_java_that_has_the_module_does_not_warn_of_it() -> None:
    answer = java_version(jvm.java_home(), "--add-modules=jdk.incubator.vector")
    assert (answer.returncode, "incubator" in answer.stderr) == (0, False), answer.stderr


def test_the_bundled_home_is_made_once(tmp_path: Path) -> None:
    home = jvm.bundled_home(tmp_path)
    made_ns = (home / "bin" / "java").stat().st_mtime_ns
    assert jvm.bundled_home(tmp_path) == home
    assert (home / "bin" / "java").stat().st_mtime_ns == made_ns
    assert [path.name for path in tmp_path.iterdir()] == [home.name]


def test_a_cache_that_other_users_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = jvm._own_folder(tmp_path / "own")
    assert (jvm._own_folder(folder), folder.stat().st_mode & 0o777) == (folder, 0o700)
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(UnavailableError, match="set MERLOT_CACHE to a folder of yours"):
        jvm._own_folder(link)
    folder.chmod(0o777)
    with pytest.raises(UnavailableError, match="set MERLOT_CACHE to a folder of yours"):
        jvm._own_folder(folder)


def test_a_machine_without_java_runs_zookeeper(tmp_path: Path) -> None:
    """PATH holds what the script needs and no java."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    code = f"""
from pathlib import Path
from merlot_spark.jvm import java_home
from merlot_spark.zookeeper import ZooKeeper
assert java_home().parent == Path({str(tmp_path / "cache")!r}), java_home()
with ZooKeeper(Path({str(tmp_path / "zookeeper")!r})) as server:
    print("serves", server.port)
"""
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "MERLOT_CACHE": str(tmp_path / "cache")}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("serves ")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_392"', 1),
        ("command not found", 0),
    ],
)
def test_versions_are_told(text: str, major: int) -> None:
    assert jvm._major(text) == major


def test_zookeeper_serves_again_on_the_same_port_after_a_restart(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path) as server:
        port = server.port
        server.restart()
        assert server.port == port
