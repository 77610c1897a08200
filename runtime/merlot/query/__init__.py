"""From a bound query and segments to rows.

Own binding with constants worked out and planning (`plan`), execution of a plan's leaf over segments (`execute`), and
the merging of partial answers on servers and brokers (`answer`). Must not know where segments come from, nor HTTP,
sockets or ZooKeeper. Plans are immutable and shared; all else belongs to one query, and inside it
to one task on one thread.
"""
