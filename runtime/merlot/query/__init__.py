"""From a bound query and segments to rows.

Own binding with constants worked out (`binding`), planning (`rewrite`, `logical`), execution over segments (`execute`),
and the merging of partial answers on servers and brokers (`combine`, `reduce`, `result`). Must not know where segments
come from, nor HTTP, sockets or ZooKeeper. Plans are immutable and shared; all else belongs to one query, and inside it
to one task on one thread.
"""
