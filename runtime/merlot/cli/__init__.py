"""Command line of Merlot: commands become calls of a node's HTTP API, or run a role.

Owns arguments, output and exit codes (0 success, 1 failure, 2 wrong usage, 130 interrupted). Decides nothing about
tables or queries. Heavy modules (the engine, the roles, pydantic) are imported inside the commands that need them, so
that `merlot` starts fast. One thread; only `serve` and the roles run an event loop.
"""
