"""Segments: an immutable file each, with its writer, its zero-copy reader and its sidecar; rows of streams in memory.

Owns the format (FORMAT.md), encodings, indexes and the decode cache. Must not know queries, tables' state or the
network. A sealed segment is immutable: any thread may read it. A builder belongs to one thread. `mutable` has its own
rule.
"""
