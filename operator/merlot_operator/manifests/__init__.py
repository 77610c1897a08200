"""Kubernetes objects as pure functions of what is wanted: no input or output, no clock, no chance.

Same input, same object, byte by byte: what is applied carries a hash of it. Names are fixed here and nowhere else.
"""
