"""Files in the deep store: fetch, verify, put and delete them, over pyarrow.fs.

Owns retries, temporary names, and the errors of a failing store. Must not know records or tables. Calls block for as
long as the transfer takes: make them on a pool's thread.
"""
