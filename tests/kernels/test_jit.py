"""Which calls of a kernel compile it: read-only and writable arrays are one type wherever that can be."""

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from merlot import telemetry
from merlot.kernels import baseline, compile_time, machine_code
from merlot.kernels.jit import read_only

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled in this run")

SOURCE = """
from merlot.kernels.jit import kernel

@kernel
def copy(values, out):
    for place in range(out.size):
        out[place] = values[place]
"""

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib
import numpy as np
from numba.core import event
from merlot.kernels import jit
kernel = importlib.import_module(sys.argv[2]).copy
with event.install_recorder("numba:compile") as recorder:
    kernel(np.array([1]), np.zeros(1, np.int64))
mine = [one for _, one in recorder.buffer if one.is_end and one.data["dispatcher"] is kernel]
print(len(mine))
"""
HOLDER = """
import sys, pathlib
from merlot.kernels.machine_code import Folder
with Folder(pathlib.Path(sys.argv[1])).locked(sys.argv[2], 0.0) as is_locked:
    assert is_locked
    print("locked", flush=True)
    sys.stdin.read()
"""

Load = Callable[[], Any]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "code"))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The kernel as a process finds it that has not called it yet; the first one finds nothing on disk."""
    path = tmp_path / f"{tmp_path.name}.py"
    path.write_text(SOURCE)
    name = f"merlot.{tmp_path.name}"

    def fresh() -> Any:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module.copy

    return fresh


def compilations(kernel: Any) -> float:
    name = f"{kernel.py_func.__module__.rpartition('.')[2]}.copy"
    return telemetry.KERNEL_COMPILATIONS.labels(name)._value.get()  # type: ignore[no-any-return]


def copied(kernel: Any, values: Any) -> list[int]:
    out = np.zeros(len(values), np.int64)
    kernel(values, out)
    return out.tolist()  # type: ignore[no-any-return]


def test_writable_arrays_take_the_code_of_read_only_ones(load: Load) -> None:
    kernel = load()
    assert copied(kernel, read_only(np.array([1, 2]))) == [1, 2]
    assert copied(kernel, np.array([3, 4])) == copied(kernel, np.array([3, 4])) == [3, 4]
    assert compilations(kernel) == 1


def test_that_code_is_found_on_disk_too(load: Load) -> None:
    copied(load(), read_only(np.array([1])))
    kernel = load()
    assert copied(kernel, np.array([5])) == [5]
    assert compilations(kernel) == 1


def test_threads_that_look_for_code_at_once_leave_calls_fast(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load()
    copied(kernel, read_only(np.array([1])))
    arguments = np.array([1]), np.zeros(1, np.int64)
    for _ in range(3):  # what each does that found none
        kernel._compile_for_args(*arguments)
    looks: list[Any] = []
    monkeypatch.setattr(kernel, "_compile_for_args", looks.append)
    kernel(*arguments)
    assert looks == []
    assert arguments[1].tolist() == [1]


def test_read_only_arrays_take_no_code_that_might_write(load: Load) -> None:
    kernel = load()
    copied(kernel, np.array([1]))
    assert copied(kernel, read_only(np.array([2]))) == [2]
    assert compilations(kernel) == 2


def test_other_types_have_their_own_code(load: Load) -> None:
    kernel = load()
    copied(kernel, read_only(np.array([1])))
    assert copied(kernel, read_only(np.array([7], np.int32))) == [7]
    assert compilations(kernel) == 2


def test_metrics_tell_of_compilations(load: Load) -> None:
    kernel = load()
    copied(kernel, np.array([1]))
    name = kernel.py_func.__module__.rpartition(".")[2]
    assert f'merlot_kernel_compilations_total{{kernel="{name}.copy"}} 1.0' in telemetry.render_metrics().decode()


def test_a_comment_compiles_nothing_anew(load: Load, tmp_path: Path) -> None:
    copied(load(), read_only(np.array([1])))
    source = tmp_path / f"{tmp_path.name}.py"
    source.write_text(f"# Copyright\n\n{source.read_text()}\n# The end.\n")
    kernel = load()
    assert copied(kernel, read_only(np.array([5]))) == [5]
    assert compilations(kernel) == 1


def test_code_that_comes_with_the_package_is_used_and_not_added_to(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(load(), read_only(np.array([1])))
    monkeypatch.setattr(machine_code, "SHIPPED", tmp_path / "code")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "other"))
    kernel = load()
    assert copied(kernel, np.array([5])) == copied(kernel, np.array([5], np.int8)) == [5]
    assert compilations(kernel) == 2
    assert [len(list((tmp_path / folder).rglob("*.nbc"))) for folder in ("code", "other")] == [1, 1]


@pytest.mark.skipif(baseline.usable() is None, reason="this processor cannot run the code that wheels bring")
def test_code_for_an_older_processor_is_used_and_not_added_to(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), tmp_path.name]
    processor = baseline.for_this_architecture()
    assert processor is not None
    settings = dict(one.split("=", 1) for one in processor.settings)
    subprocess.run(command, check=True, env=os.environ | settings | {"NUMBA_CACHE_DIR": str(tmp_path / "code")})
    # The code names its module as that process imported it.
    monkeypatch.setitem(sys.modules, tmp_path.name, sys.modules[kernel.py_func.__module__])
    monkeypatch.setattr(machine_code, "SHIPPED", tmp_path / "code")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "other"))
    assert copied(kernel, np.array([5])) == [5]
    assert compilations(kernel) == 0


def test_kernels_run_where_nothing_can_be_written(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    assert copied(load(), np.array([1])) == [1]


def test_processes_that_need_one_kernel_compile_it_once(load: Load, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path), tmp_path.name]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "code")}
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(3)]
    assert sorted(int(worker.communicate()[0]) for worker in workers) == [0, 0, 1]


def test_whoever_waits_long_for_another_process_compiles_too(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load()
    given = machine_code.types_of((numba.int64[::1], numba.int64[::1]))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(next(iter(kernel._cache._folders())).path), kernel._cache.name(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    monkeypatch.setattr(machine_code, "PATIENCE_S", 0.0)
    assert copied(kernel, np.array([1])) == [1]
    holder.communicate()


def test_time_with_a_compiler_is_counted_once_for_all_threads(load: Load) -> None:
    before, started = compile_time.seconds(), time.monotonic()
    kernels = [load(), load()]
    threads = [threading.Thread(target=copied, args=(kernel, np.array([1]))) for kernel in kernels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < compile_time.seconds() - before <= time.monotonic() - started


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callee, caller = f"{tmp_path.name}_callee", f"{tmp_path.name}_caller"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{caller}.py").write_text(
        f"from {callee} import one\nfrom merlot.kernels.jit import kernel\n\n"
        "@kernel\ndef more(value):\n    return value + one()\n"
    )
    for number in (1, 22):
        (tmp_path / f"{callee}.py").write_text(
            f"from merlot.kernels.jit import kernel\n\n@kernel\ndef one():\n    return {number}\n"
        )
        for name in (callee, caller):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        assert importlib.import_module(caller).more(10) == 10 + number
