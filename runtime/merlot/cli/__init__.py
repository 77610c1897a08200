"""The command line: what people type, turned into calls of a node's HTTP API or into a role that runs.

Owns arguments, output and exit codes (0 success, 1 failure, 2 wrong usage, 130 interrupted). Decides nothing about
tables or queries. Modules that carry weight (the engine, the roles, pydantic) are imported inside the commands that
need them, so that `merlot` starts fast. One thread; only `serve` and the roles run an event loop.
"""
