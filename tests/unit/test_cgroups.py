"""What the control groups of a process allow."""

from pathlib import Path

import pytest

from merlot import cgroups

GIB = 1 << 30
NONE_V1 = 9_223_372_036_854_771_712


class Machine:
    """A tree of groups, and what the kernel says of a process in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "cgroup"
        self.own = folder / "own"
        self.root.mkdir()

    def write(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    def memory(self) -> int | None:
        return cgroups.memory_bytes(self.root, self.own)

    def cpus(self) -> float | None:
        return cgroups.num_cpus(self.root, self.own)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_groups_nothing_is_bounded(machine: Machine) -> None:
    assert (machine.memory(), machine.cpus()) == (None, None)


@pytest.mark.parametrize("own", ["0::/\n", "0::/kubepods/pod7/abc\n", "", None])
def test_a_container_of_version_2_is_bounded_by_the_root_that_it_sees(machine: Machine, own: str | None) -> None:
    if own is not None:
        machine.own.write_text(own)
    machine.write({"memory.max": str(GIB), "cpu.max": "150000 100000"})
    assert (machine.memory(), machine.cpus()) == (GIB, 1.5)


def test_a_container_of_version_1_is_bounded_by_the_roots_of_its_controllers(machine: Machine) -> None:
    machine.own.write_text("9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n")
    machine.write(
        {
            "memory/memory.limit_in_bytes": str(GIB),
            "cpu/cpu.cfs_quota_us": "200000",
            "cpu/cpu.cfs_period_us": "100000",
        }
    )
    assert (machine.memory(), machine.cpus()) == (GIB, 2.0)


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_bound_of_a_group_and_of_those_above_it_counts(machine: Machine, version: int) -> None:
    base, name = ("memory/", "memory.limit_in_bytes") if version == 1 else ("", "memory.max")
    machine.own.write_text("9:memory:/a/b/c\n" if version == 1 else "0::/a/b/c\n")
    none = str(NONE_V1) if version == 1 else "max"
    machine.write({f"{base}a/{name}": str(3 * GIB), f"{base}a/b/{name}": str(2 * GIB), f"{base}a/b/c/{name}": none})
    assert machine.memory() == 2 * GIB
    machine.write({f"{base}other/{name}": "1"})
    assert machine.memory() == 2 * GIB


@pytest.mark.parametrize("text", ["max 100000", "nonsense", "", "-1 100000", "100000 0"])
def test_what_is_no_quota_bounds_nothing(machine: Machine, text: str) -> None:
    machine.write({"cpu.max": text, "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"})
    assert machine.cpus() is None


def test_paths_that_lead_out_of_the_tree_are_not_followed(machine: Machine) -> None:
    machine.own.write_text("0::/../../elsewhere\n")
    (machine.root.parent / "elsewhere").mkdir()
    (machine.root.parent / "elsewhere" / "memory.max").write_text("1\n")
    assert machine.memory() is None
