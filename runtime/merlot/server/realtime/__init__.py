"""Consumption of streams on a server: from messages to sealed segments, with progress reports.

A thread per partition (`partition`) drives the replica of `cluster.consuming.machine`, which decides what to do next.
The thread reads (`reading`, `poller`) and appends (`open_segments`). Writes of shared state and the making of files run
beside it (`actions`, `sealing`). What the server has of a partition is an immutable `partition_log`, which queries read
without a lock. A `row_listener` hears of every row before queries see it. `table` runs on the event loop and decides
which partitions this server consumes.

This package must not decide what shared state means, when a segment ends, or which replica makes its file.
"""
