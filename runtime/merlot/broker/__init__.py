"""Answer SQL over HTTP and gRPC: choose a replica for each segment, scatter, reduce, and respond as Pinot does.

Owns the routing tables, the plan cache, the scatter with its retries, and the response. Must not read segments or
decide where they are placed: servers and the controller do. Everything runs on one event loop. The metastore is read in
threads, which hand their results to the loop; large results are reduced in a thread. Routing snapshots are immutable
and swapped by reference.
"""
