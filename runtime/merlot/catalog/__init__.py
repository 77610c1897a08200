"""From a built segment to a published one: read its footer into a record, upload its file, publish it, and annotate old
records.

Batch ingestion, merges, backfills and commits of streams share this package. It must not build segments, nor write
shared state itself. Calls block; the package is stateless, so any thread may call.
"""
