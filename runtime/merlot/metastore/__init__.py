"""Shared state as small versioned nodes: the protocol, ZooKeeper, SQLite, and the way from a URL to one of them.

It knows nothing of what the nodes hold: that is `cluster`. Calls block; any thread may call.
"""
