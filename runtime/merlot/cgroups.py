"""Limits of this process's control groups, in both versions of cgroups.

Every group above a process limits it. In a container with a cgroup namespace, the container's group is the root of the
mounted file system. Without one, /proc/self/cgroup names a path of the host that is not mounted, but the root is the
container's group there too. On a machine without containers (systemd's MemoryMax=) the path leads below the root.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


def memory_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Return the lowest memory limit; None if there is none. Version 1 writes a number beyond all memory for no
    limit."""
    folders = _folders("memory", root, own)
    texts = [text for folder in folders for text in _texts(folder, "memory.max", "memory.limit_in_bytes")]
    return min((int(text) for text in texts if text.isdecimal()), default=None)


def num_cpus(root: Path = ROOT, own: Path = OWN) -> float | None:
    """Return the lowest CPU quota, in processors; None if there is none."""
    quotas: list[list[str]] = []
    for folder in _folders("cpu", root, own):
        quotas += (text.split() for text in _texts(folder, "cpu.max"))
        quotas.append([*_texts(folder, "cpu.cfs_quota_us"), *_texts(folder, "cpu.cfs_period_us")])
    pairs = [tuple(map(int, quota)) for quota in quotas if len(quota) == 2 and all(map(str.isdecimal, quota))]
    return min((quota / period for quota, period in pairs if period), default=None)


def _folders(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Yield the groups that may limit this process, from their root downward."""
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
