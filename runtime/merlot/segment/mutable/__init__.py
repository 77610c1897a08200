"""Segments of a stream while their rows arrive: appended to by one thread, read by any thread without a lock.

Owns the arrays that grow, and the conversion of their rows into a sealed file; must not know streams. A reader takes a
snapshot, a number of rows, and sees no other rows: a row that counts never changes. ADR 21.
"""
