"""Files in the deep store: fetch, verify, put, delete, over pyarrow.fs.

Owns retries, temporary names and what a failing store looks like to the rest. Must not know records or tables. Calls
block for as long as the transfer takes: make them on a pool's thread.
"""
