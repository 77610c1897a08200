"""Baseline processors, for which the kernels of wheels and images are compiled: one for each architecture.

`env $(python -m merlot.kernels.baseline) python -m merlot.kernels.warm` compiles for the baseline of this machine's
architecture. Any thread.
"""

import platform
import sys
from dataclasses import dataclass

import llvmlite.binding


@dataclass(frozen=True)
class Processor:
    """Processor by LLVM's names."""

    name: str
    features: str
    """Features, each with a sign, separated by commas."""

    @property
    def settings(self) -> tuple[str, str]:
        """numba's environment variables that select this processor."""
        return f"NUMBA_CPU_NAME={self.name}", f"NUMBA_CPU_FEATURES={self.features}"


X86_64 = Processor("x86-64-v3", "+sse4.2,+popcnt,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe")
"""Baseline that every server since 2015 fulfils: Haswell, Zen."""
ARM64 = Processor("generic", "")
PROCESSORS = {"x86_64": X86_64, "AMD64": X86_64, "aarch64": ARM64, "arm64": ARM64}


def for_this_architecture() -> Processor | None:
    """Return the baseline for this machine's architecture; None if nothing is built for it."""
    return PROCESSORS.get(platform.machine())


def usable() -> Processor | None:
    """Return the baseline whose code this machine runs; None if it lacks a feature."""
    processor = for_this_architecture()
    if processor is None:
        return None
    here = llvmlite.binding.get_host_cpu_features()
    needed = [feature[1:] for feature in processor.features.split(",") if feature]
    return processor if all(here.get(feature) for feature in needed) else None


def main() -> int:
    """Print the variables that make numba compile for the baseline; returns the exit code."""
    processor = for_this_architecture()
    if processor is None:
        sys.stderr.write(f"error: no baseline is chosen for {platform.machine()}: name a processor in NUMBA_CPU_NAME\n")
        return 1
    sys.stdout.write("\n".join(processor.settings) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
