"""Segments of a stream while their rows arrive: appended to by one thread, read by any without a lock.

Owns the arrays that grow and the rows' way from them into a sealed file; must not know streams. Whoever reads takes a
snapshot, a number of rows, and sees those alone: what was written once is never changed, only added to. ADR 21.
"""
