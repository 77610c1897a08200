"""Streams on a server: what it consumes, how rows become sealed segments, and what it tells of that.

A thread per partition reads, appends and ends segments (`partition`); what it has of the partition is an immutable
`line` that queries take without a lock; sealing and uploading are a thread's of their own (`sealing`). `table` is the
part of the event loop: which partitions are this server's. Must not decide what shared state means: ends and commits
are transactions of `cluster.consuming`.
"""
