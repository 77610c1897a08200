"""Upsert tables of batches on a server: which docs of pushed segments are valid.

Own the index of each partition's keys (`index`), what queries take of it (`views`), and when it is brought up to what
the table consists of (`upserts`). Which rows count is a function of the segments that a partition consists of (its
edition, `cluster.segments.editions`), never of when or in which order they were loaded: replicas agree, and a server
that starts anew comes to the same bits. Must not load segments, nor decide which a server holds: the keeper does.
"""
