"""Spark jobs that fill Merlot tables.

Owns the session, the segment build job and its publication. Must not hold cluster state: it talks to the
controller over HTTP. Executors run the segment builder in Spark's own Python workers, one thread each.
"""
