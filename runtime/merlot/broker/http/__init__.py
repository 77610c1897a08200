"""The broker's HTTP: the fast path for short POSTs, aiohttp for the rest. Runs on the role's event loop."""
