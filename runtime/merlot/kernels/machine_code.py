"""Machine code on disk: a file for each kernel and types of its arguments, named after its inputs.

A name contains a digest of the kernel's bytecode, of the constants that it uses, and of the kernels that it calls. So a
changed comment or a copy of the sources makes no code stale. The exception is a module whose functions a kernel uses
without their being kernels, such as the intrinsics of `kernels.instructions`: its whole file is digested. Any number of
processes may write: two files of one name have the same content, and each appears whole. numba's own cache keeps an
index per function that each process rewrites, compares whole files, and reads only folders that it may write to.

Code is read from the folder that comes with the package and from a folder that can be written to; often they are the
same. Code of a wheel or an image was compiled for a processor that is older than most (`kernels.baseline`). Any
thread.
"""

import fcntl
import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import config, serialize, sigutils, types
from numba.core.compiler import CompileResult

from merlot.kernels import baseline

_CONFIG: Any = config
_RESULT: Any = CompileResult
_SERIALIZE: Any = serialize
_SIGNATURES: Any = sigutils

SHIPPED = Path(__file__).parent / "compiled"
"""Folder beside the sources, in a wheel, an image and a checkout."""
SUFFIX = ".nbc"
PATIENCE_S = 5.0
"""Longest wait for a process that compiles the same kernel; a process of low priority may take minutes."""
POLL_S = 0.01


class Code:
    """Cache of one kernel, by the protocol of numba's own caches."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._stem = ""

    @property
    def cache_path(self) -> str:
        """Folder that new code is written to."""
        return str(self._folder().path)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Load numba's compile result; None if there is no file."""
        target_context.refresh()
        name = self.name(types_of(signature))
        for folder in self._folders():
            data = folder.read(name)
            if data is not None:
                return _RESULT._rebuild(target_context, *pickle.loads(data))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compile result."""
        name = self.name(types_of(signature))
        self._folder().write(name, _SERIALIZE.dumps(result._reduce()))

    def fitting(self, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Find types whose code is on disk and takes arguments of the given types; the given types if they are there.

        Code for read-only arrays takes writable ones, never the other way round."""
        match = self._fitting(given)
        if match is None:
            for folder in self._folders():
                folder.look()
            match = self._fitting(given)
        return match

    def _fitting(self, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self.has(given):
            return given
        prefix, wanted = self._prefix(given), _read_only_bits(given)
        for folder in self._folders():
            for name in folder.starting_with(prefix):
                bits = int(name[len(prefix) : -len(SUFFIX)], 16)
                if bits & wanted == wanted:
                    return _with_read_only(given, bits)
        return None

    def has(self, given: tuple[Any, ...]) -> bool:
        """Return True if there is code for exactly these types."""
        name = self.name(given)
        return any(folder.has(name) for folder in self._folders())

    @contextmanager
    def alone(self, given: tuple[Any, ...], *, waits: bool = True) -> Iterator[bool]:
        """Try to become the only process that compiles for these types; yields True if that worked."""
        with self._folder().locked(self.name(given), PATIENCE_S if waits else 0.0) as is_locked:
            yield is_locked

    def name(self, given: tuple[Any, ...]) -> str:
        """Return the name of the file for some types."""
        return f"{self._prefix(given)}{_read_only_bits(given):x}{SUFFIX}"

    def _prefix(self, given: tuple[Any, ...]) -> str:
        if not self._stem:
            function = self._dispatcher.py_func
            module = function.__module__.rpartition(".")[2]
            self._stem = f"{module}.{function.__name__}-{_digest_of(self._dispatcher)[:16]}"
        every = str(_with_read_only(given, -1))
        return f"{self._stem}-{hashlib.sha256(every.encode()).hexdigest()[:16]}-"

    def _folder(self) -> "Folder":
        return next(iter(self._folders()))

    def _folders(self) -> Iterable["Folder"]:
        return _folders(_CONFIG.CACHE_DIR, SHIPPED, *_targets(self._dispatcher.targetctx.codegen()))

    def enable(self) -> None:
        """Do nothing: the cache is always on."""

    def disable(self) -> None:
        """Do nothing: the cache is always on."""

    def flush(self) -> None:
        """Do nothing: code that is stale has another name."""


class Folder:
    """Folder of code for one processor, one Python and one numba."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: set[str] = set()
        self._lock: int | None = None
        self._is_made = False
        self.look()

    def look(self) -> None:
        """List the files again: other processes write too."""
        try:
            self._names = {name for name in os.listdir(self.path) if name.endswith(SUFFIX)}
        except OSError:
            self._names = set()

    def has(self, name: str) -> bool:
        """Return True if the file was there at the last look."""
        return name in self._names

    def starting_with(self, prefix: str) -> list[str]:
        """List the names with a prefix, sorted, so that every process chooses the same one."""
        return sorted(name for name in self._names if name.startswith(prefix))

    def read(self, name: str) -> bytes | None:
        """Read a file; None if there is none."""
        try:
            return (self.path / name).read_bytes()
        except OSError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Make a file appear whole. If the folder cannot be written to, the next process compiles again."""
        try:
            self._make()
            handle, draft = tempfile.mkstemp(dir=self.path, prefix=".draft-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(draft).chmod(0o644)
            Path(draft).replace(self.path / name)
        except OSError:
            return
        self._names.add(name)

    @contextmanager
    def locked(self, name: str, patience_s: float) -> Iterator[bool]:
        """Lock a name among processes; yields True if that worked in time. Each name is a byte of one lock file."""
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
        file, is_locked = self._lock_file(), False
        if file is not None:
            is_locked = _lock(file, place, patience_s)
        try:
            yield is_locked
        finally:
            if file is not None and is_locked:
                fcntl.lockf(file, fcntl.LOCK_UN, 1, place)

    def _make(self) -> None:
        # Only once: a deleted checkout must not come back.
        if not self._is_made:
            self.path.mkdir(parents=True, exist_ok=True)
            self._is_made = True

    def _lock_file(self) -> int | None:
        # Never closed: closing it would release every lock that this process holds in it.
        if self._lock is None:
            try:
                self._make()
                self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError:
                return None
        return self._lock


def _lock(file: int, place: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
        else:
            return True


@cache
def _folders(named: str, shipped: Path, target: str, *common: str) -> tuple[Folder, ...]:
    """Return the folders to read from; the first is also written to. Shipped code may be for a common processor."""
    if named:
        roots = [Path(named), shipped]
    elif os.access(shipped if shipped.exists() else shipped.parent, os.W_OK):
        roots = [shipped]
    else:
        roots = [Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "merlot" / "kernels", shipped]
    return tuple(Folder(place) for place in (*(root / target for root in roots), *(shipped / name for name in common)))


@cache
def _targets(codegen: Any) -> tuple[str, ...]:
    """Name the folders for this processor and, if it runs that code, for the one that wheels are made for."""
    triple, name, features = codegen.magic_tuple()
    is_named = _CONFIG.CPU_NAME or _CONFIG.CPU_FEATURES is not None
    common = None if is_named else baseline.usable()
    return _target(triple, name, features), *([_target(triple, common.name, common.features)] if common else [])


def _target(triple: str, name: str, features: str) -> str:
    """Name a folder after what code depends on besides sources and types."""
    facts = ((triple, name, features), _CONFIG.OPT, _CONFIG.BOUNDSCHECK, llvmlite.__version__)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
    return f"{sys.implementation.cache_tag}-numba-{numba.__version__}-{digest}"


def types_of(signature: Any) -> tuple[Any, ...]:
    """Return the argument types of a numba signature, in any of its forms."""
    arguments, _ = _SIGNATURES.normalize_signature(signature)
    return tuple(arguments)


def _read_only_bits(given: tuple[Any, ...]) -> int:
    """Return a number whose bit k is set if argument k is a read-only array."""
    return sum(1 << index for index, type_ in enumerate(given) if isinstance(type_, types.Array) and not type_.mutable)


def _with_read_only(given: tuple[Any, ...], bits: int) -> tuple[Any, ...]:
    return tuple(
        type_.copy(readonly=True) if isinstance(type_, types.Array) and bits >> index & 1 else type_
        for index, type_ in enumerate(given)
    )


@cache
def _digest_of(dispatcher: Any) -> str:
    """Digest the inputs of a kernel's code, including the kernels that it calls."""
    function = dispatcher.py_func
    digest = hashlib.sha256(repr(sorted(dispatcher.targetoptions.items())).encode())
    for fact in _facts(function.__code__, function.__doc__):
        digest.update(fact.encode() + b"\0")
    for name in sorted(set(function.__code__.co_names)):
        if name in function.__globals__:
            digest.update(f"{name}={_described(function.__globals__[name])}".encode() + b"\0")
    for cell in function.__closure__ or ():
        digest.update(_described(cell.cell_contents).encode() + b"\0")
    return digest.hexdigest()


def _facts(code: CodeType, doc: str | None) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_kwonlyargcount))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _facts(constant, None)
        elif constant != doc or doc is None:
            yield f"{type(constant).__name__} {constant!r}"


def _described(value: Any) -> str:
    if hasattr(value, "py_func"):
        return _digest_of(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, ModuleType):
        return f"{value.__name__} {_file_digest(value.__name__)}"
    if isinstance(value, type) or hasattr(value, "__module__"):
        return f"{getattr(value, '__qualname__', type(value).__qualname__)} {_file_digest(value.__module__)}"
    return f"{type(value).__name__} {value!r}"


@cache
def _file_digest(module: str) -> str:
    """Digest a module of this package. A kernel's bytecode only names the module's functions, but numba compiles
    them."""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_ours = module.partition(".")[0] == __name__.partition(".")[0]
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file and is_ours else module
