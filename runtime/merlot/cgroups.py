"""What the control groups of this process allow, in both versions of them.

Every group above a process bounds it. In a container with a namespace of its own the group is the root of what is
mounted; without one, /proc/self/cgroup names a path of the host that is not mounted, and the root is the container's.
On a machine without containers (systemd's MemoryMax=) the path leads below the root.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


def memory_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """The least bound; None without one. Version 1 writes a number past all memory where there is none."""
    folders = _folders("memory", root, own)
    texts = [text for folder in folders for text in _texts(folder, "memory.max", "memory.limit_in_bytes")]
    return min((int(text) for text in texts if text.isdecimal()), default=None)


def num_cpus(root: Path = ROOT, own: Path = OWN) -> float | None:
    """The least quota, as processors' time; None without one."""
    quotas: list[list[str]] = []
    for folder in _folders("cpu", root, own):
        quotas += (text.split() for text in _texts(folder, "cpu.max"))
        quotas.append([*_texts(folder, "cpu.cfs_quota_us"), *_texts(folder, "cpu.cfs_period_us")])
    known = [tuple(map(int, quota)) for quota in quotas if len(quota) == 2 and all(map(str.isdecimal, quota))]
    return min((quota / period for quota, period in known if period), default=None)


def _folders(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """The groups of this process that may bound it, from their root downward."""
    yield from (root, root / controller)
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        base = root / controller if names else root
        parts = [part for part in path.split("/") if part]
        if ".." not in parts:
            yield from (base.joinpath(*parts[: 1 + depth]) for depth in range(len(parts)))


def _texts(folder: Path, *names: str) -> Iterator[str]:
    for name in names:
        with contextlib.suppress(OSError):
            yield (folder / name).read_text().strip()
