"""The API server: a client, a cache of its objects, writes of what differs, and events. One event loop."""
