"""Merge the segments of a time bucket into fewer, larger ones: source, shuffle, rollup.

Owns which rows come out and in what order, with bounded memory. Must not know tasks, lineage or the metastore: a minion
or a Spark job calls it with files and gets files. Runs in the caller's thread.
"""
