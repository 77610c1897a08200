"""Upsert tables of batches on a server: which docs of pushed segments are valid.

This package owns the index of each partition's keys (`index`), what queries take of it (`views`), and when it is
brought up to what the table consists of (`upserts`). Which rows are valid is a function of the segments that a
partition consists of (its edition, `cluster.segments.editions`), never of when or in which order they were loaded:
replicas agree, and a server that starts anew comes to the same bits. It must not load segments, nor decide which a
server holds: the table data manager does.
"""
