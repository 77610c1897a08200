"""Keep the process alive when pages of a mapped file are gone: the file was cut, or its disk cannot read them.

The kernel then sends SIGBUS to the thread that reads. A handler, machine code that touches nothing of Python, puts
zeros in place of the pages from there to the end of that mapping, notes that the mapping is lost, and lets the thread
go on. Results computed from such zeros are wrong, so readers of mapped files check afterwards: `num_faults` has
changed, or `is_lost(slot)`. ADR 71.

On Linux only. Elsewhere the process ends, as it does for a SIGBUS that concerns no file that is watched here. Any
thread; `forget` may be called while objects are collected.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.errors import CorruptionError

CAPACITY: Final = 1 << 18
"""Number of mappings that can be watched: more than Linux allows a process by default (65,530)."""
NOT_WATCHED: Final = -1

_START, _END, _LOST = range(3)
_USED, _FAULTS = range(2)
_ROW_BYTES: Final = 3 * 8
_ADDRESS_AT: Final = 16
"""Offset of the address in siginfo_t, on 64-bit Linux."""
_SIGACTION_BYTES: Final = 152
"""Size of the C library's struct sigaction: handler, 128 bytes of mask, flags, restorer."""
_FLAGS_AT: Final = 136
_SA_SIGINFO: Final = 0x4
_SA_ONSTACK: Final = 0x08000000
_SA_RESTART: Final = 0x10000000

# The kernel gives a page of memory when a row in it is first written.
_memory = mmap.mmap(-1, CAPACITY * _ROW_BYTES)
_table: NDArray[np.int64] = np.frombuffer(_memory, np.int64).reshape(CAPACITY, 3)
_header: NDArray[np.int64] = np.zeros(2, np.int64)
_counts = _header.data
"""View of `_header`, faster to read than the array."""
_free: deque[int] = deque()
_next = itertools.count()
_lock = threading.Lock()
_handler: _Handler | None = None


def watch(start: int, size: int) -> int:
    """Let the process survive the loss of a mapping's pages. Returns the mapping's slot, or NOT_WATCHED if there are
    too many."""
    try:
        slot = _free.pop()
    except IndexError:
        slot = next(_next)
    if slot >= CAPACITY:
        return NOT_WATCHED
    _table[slot] = (start, start + size, 0)
    with _lock:
        _header[_USED] = max(int(_header[_USED]), slot + 1)
        _install()
    return slot


def forget(slot: int) -> None:
    """End the watch; to be called before the mapping ends."""
    if slot != NOT_WATCHED:
        _table[slot] = 0
        _free.append(slot)


def is_lost(slot: int) -> bool:
    """Return True if zeros have replaced some pages."""
    return slot != NOT_WATCHED and _table[slot, _LOST] != 0


def num_faults() -> int:
    """Return how often pages of any mapping were lost since the process began."""
    return _counts[_FAULTS]


@contextmanager
def watched(what: str) -> Iterator[None]:
    """Raise CorruptionError at the end if pages of any mapped file were lost within the block."""
    before = num_faults()
    yield
    if num_faults() != before:
        raise CorruptionError(f"pages of a mapped file could not be read during={what}")


class _Handler:
    """The installed handler. It and the objects that it refers to have to live as long as the process."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._old = ctypes.create_string_buffer(_SIGACTION_BYTES)
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
        module = llvm.parse_assembly(str(_module(ctypes.addressof(self._old))))
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        new = ctypes.create_string_buffer(_SIGACTION_BYTES)
        ctypes.c_uint64.from_buffer(new, 0).value = self._engine.get_function_address("on_sigbus")
        ctypes.c_int.from_buffer(new, _FLAGS_AT).value = _SA_SIGINFO | _SA_ONSTACK | _SA_RESTART
        if ctypes.CDLL(None).sigaction(signal.SIGBUS, new, self._old):
            raise OSError("sigaction failed")


def _install() -> None:
    global _handler
    if _handler is None and sys.platform == "linux":
        _handler = _Handler()


def _module(old_action: int) -> Any:
    """Return the handler as LLVM's intermediate code: `void on_sigbus(int number, siginfo_t *info, void *context)`."""
    from llvmlite import ir

    number, word, byte = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
    libc = ctypes.CDLL(None)

    def at(address: int, kind: Any) -> Any:
        return ir.Constant(word, address).inttoptr(kind.as_pointer())

    def imported(function: Any, returned: Any, *arguments: Any) -> Any:
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        return build.inttoptr(ir.Constant(word, address), ir.FunctionType(returned, arguments).as_pointer())

    module = ir.Module("lost_pages")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), (number, byte, byte)), "on_sigbus")
    blocks = {name: function.append_basic_block(name) for name in ("begin", "look", "compare", "other", "ours")}
    foreign, done = function.append_basic_block("foreign"), function.append_basic_block("done")

    build = ir.IRBuilder(blocks["begin"])
    address = build.load(build.inttoptr(_offset(build, function.args[1], _ADDRESS_AT, word), word.as_pointer()))
    used = build.load(at(_header.ctypes.data + 8 * _USED, word))
    build.branch(blocks["look"])

    build.position_at_end(blocks["look"])
    slot = build.phi(word, "slot")
    slot.add_incoming(ir.Constant(word, 0), blocks["begin"])
    build.cbranch(build.icmp_unsigned("<", slot, used), blocks["compare"], foreign)

    build.position_at_end(blocks["compare"])
    row = build.add(ir.Constant(word, _table.ctypes.data), build.mul(slot, ir.Constant(word, _ROW_BYTES)))
    start, end, lost = (
        build.inttoptr(build.add(row, ir.Constant(word, 8 * column)), word.as_pointer())
        for column in (_START, _END, _LOST)
    )
    stop = build.load(end)
    is_above = build.icmp_unsigned(">=", address, build.load(start))
    build.cbranch(build.and_(is_above, build.icmp_unsigned("<", address, stop)), blocks["ours"], blocks["other"])

    build.position_at_end(blocks["other"])
    slot.add_incoming(build.add(slot, ir.Constant(word, 1)), blocks["other"])
    build.branch(blocks["look"])

    build.position_at_end(blocks["ours"])
    build.store(ir.Constant(word, 1), lost)
    build.atomic_rmw("add", at(_header.ctypes.data + 8 * _FAULTS, word), ir.Constant(word, 1), "seq_cst")
    page = build.and_(address, ir.Constant(word, -mmap.PAGESIZE))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED, which the module does not name
    zeros = build.call(
        imported(libc.mmap, word, word, word, number, number, number, word),
        [page, build.sub(stop, page), *(ir.Constant(number, value) for value in (mmap.PROT_READ, flags, -1)), word(0)],
    )
    build.cbranch(build.icmp_signed("==", zeros, ir.Constant(word, -1)), foreign, done)

    # The instruction is tried again, under the action that was set before: by default, the process ends.
    build.position_at_end(foreign)
    build.call(
        imported(libc.sigaction, number, number, word, word),
        [ir.Constant(number, signal.SIGBUS), ir.Constant(word, old_action), ir.Constant(word, 0)],
    )
    build.branch(done)

    build.position_at_end(done)
    build.ret_void()
    return module


def _offset(build: Any, pointer: Any, offset: int, word: Any) -> Any:
    return build.add(build.ptrtoint(pointer, word), word(offset))
