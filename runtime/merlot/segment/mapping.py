"""Map files read-only, without a file descriptor each; read small files, without a mapping each.

Python's own `mmap` keeps a duplicate of the descriptor for as long as the mapping lives (before 3.13 this cannot be
avoided): a server of 20,000 segments would need as many. The C library's mmap needs none once it has mapped. The
mapping ends when the last view over it is gone, on whichever thread that happens.
"""

import ctypes
import mmap
import os
import weakref
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from merlot.errors import NotFoundError, UnavailableError
from merlot.segment import lost_pages
from merlot.segment.layout import damaged

_FAILED: Final = ctypes.c_void_p(-1).value
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Mapping(NamedTuple):
    """A mapped file."""

    view: memoryview
    slot: int
    """Slot for `lost_pages.is_lost`, valid as long as the view is held."""


def map_file(path: Path) -> Mapping:
    """Map a file read-only. Raises NotFoundError, UnavailableError, or CorruptionError if the file is empty."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise damaged(path, "the file is empty")
            address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
            if address == _FAILED:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
    except FileNotFoundError as error:
        raise NotFoundError(f"no segment file path={path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read segment file path={path}: {error.strerror}") from error
    pages = (ctypes.c_ubyte * size).from_address(address)
    slot = lost_pages.watch(address, size)
    # Not at exit, because threads and other objects may still read then; the pages go with the process anyway.
    weakref.finalize(pages, _unmap, address, size, slot).atexit = False
    return Mapping(memoryview(pages).cast("B").toreadonly(), slot)


def _unmap(address: int, size: int, slot: int) -> None:
    lost_pages.forget(slot)
    _LIBC.munmap(address, size)


def read_file(path: Path) -> memoryview:
    """Read a file instead of mapping it, for files of a few pages: mapping them takes longer. Raises NotFoundError or
    UnavailableError."""
    try:
        with path.open("rb", buffering=0) as file:
            content = file.read()
    except FileNotFoundError as error:
        raise NotFoundError(f"no segment file path={path}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read segment file path={path}: {error.strerror}") from error
    return memoryview(content)


def prefetch(view: memoryview) -> None:
    """Ask the kernel to read the pages of a part of a mapped file soon."""
    if not len(view):
        return
    # ctypes finds no address of a read-only view; numpy does.
    address = np.frombuffer(view, dtype=np.uint8).ctypes.data
    start = address - address % mmap.PAGESIZE
    _LIBC.madvise(start, address + len(view) - start, mmap.MADV_WILLNEED)
