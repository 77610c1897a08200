"""From a built segment to a published one: footer to record, upload, publish.

What batch ingestion, merge, backfill and commit share. Must not build or read segments. Calls block;
stateless, so any thread may make them.
"""
