"""Shared state as small versioned nodes: the protocol, its implementations for ZooKeeper and SQLite, and `connect`,
which opens one by URL.

It does not know the contents of the nodes: those are `cluster`'s. Calls block; any thread may call.
"""
