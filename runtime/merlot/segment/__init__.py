"""Segments on disk: one immutable file per segment, its writer and its zero-copy reader.

Owns the format (FORMAT.md), encodings, indexes and the decode cache. Must not know queries, tables' state or the
network. An open segment is immutable: any thread may read it; a builder belongs to one thread.
"""
