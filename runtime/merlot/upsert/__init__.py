"""Upserts of one partition of a stream: which row of a key is valid, decided by the order of the stream alone.

Own keys and their index (`keys`, `index`), comparison and expiry (`comparison`, `expiry`), merging of rows (`mergers`,
`partial`), valid docs (`valid_docs`), and what ties them together (`partition`; `dedup` for tables that keep a key's
first row). Must not know servers, streams, files or clocks: whatever decides comes with the rows, so that two replicas,
and a replay, come to the same bits. One thread writes to a partition; any thread takes a cut of its valid docs.
"""
