"""Upserts of one partition of a stream: the order of the stream alone decides which row of a key is valid.

Own keys and their index (`keys`, `index`), comparison and expiry (`comparison`, `expiry`), merging of rows (`mergers`,
`partial`), valid docs (`valid_docs`), and the partition that combines them (`partition`; `dedup` for tables that keep a
key's first row). Must not know servers, streams, files or clocks: everything that decides comes with the rows, so that
two replicas, and a replay, arrive at the same bits. One thread writes to a partition; any thread may take a cut of its
valid docs.
"""
