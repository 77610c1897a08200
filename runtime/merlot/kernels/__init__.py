"""Numba kernels: arrays in, arrays out.

This package owns the hot loops and nothing else. A kernel allocates nothing inside loops, handles no strings and raises
no exceptions: it returns a status. Its output array is the last parameter. Kernels release the GIL and keep no state,
so any thread may run any kernel on its own output.
"""
