"""Segments of a stream while their rows arrive: appended to by one thread, read by any thread without a lock.

Owns the arrays that grow, and the conversion of their rows into a sealed file; must not know streams. A reader takes a
snapshot, a number of rows, and sees those alone: rows are never changed once written, only added to. ADR 21.
"""
