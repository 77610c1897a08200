"""The API server: client, cache of what it last told, writes of what differs, events. One event loop."""
