"""Brokers: take SQL over HTTP, know which replica answers for which segment, scatter, reduce, answer as Pinot does.

Owns the routing tables, the plan cache, the scatter with its retries, and the response. Must not read segments or
decide where they live: servers and the controller do. Everything runs on one event loop; the metastore is read in
threads, which hand their results to the loop, and large results are reduced in a thread. Routing snapshots are
immutable and swapped by reference.
"""
