"""Streams on a server: what it consumes, how rows become sealed segments, and what it tells of that.

A thread per partition (`partition`) drives the replica of `cluster.consuming.machine`, which decides what is done next:
it reads (`reading`, `intake`) and appends (`heads`); shared state is written and files are made beside it (`acting`,
`sealing`). What it has of the partition is an immutable `line` that queries take without a lock. Whoever has to know of
every row before it is seen stands in for the `sink`. `table` is the part of the event loop: which partitions are this
server's. Must not decide what shared state means, nor when a segment ends or who makes its file.
"""
