"""Kubernetes objects as pure functions of what is wanted: no input or output, no clock, no randomness.

The same input gives the same object, byte by byte: an applied object carries a hash of itself. Names are fixed here and
nowhere else.
"""
