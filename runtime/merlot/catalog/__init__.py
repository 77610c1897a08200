"""From a built segment to a published one: footer to record, upload, publish; and what a record lacks of its segment.

What batch ingestion, merge, backfill and commit share. Must not build segments, nor write shared state itself.
Calls block; stateless, so any thread may make them.
"""
