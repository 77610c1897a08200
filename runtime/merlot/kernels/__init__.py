"""Numba kernels: arrays in, arrays out.

Own the hot loops and nothing else: no allocation inside loops, no strings, no exceptions (a status is returned), the
output array last. They release the GIL and keep no state, so any thread may run any kernel on its own output.
"""
