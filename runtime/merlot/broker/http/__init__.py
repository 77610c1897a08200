"""Serve the broker's HTTP: a fast path for plain query POSTs, aiohttp for the rest. Runs on the role's event loop."""
