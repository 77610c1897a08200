"""Compaction of upsert tables: segments are rewritten without their replaced rows, and small ones are merged."""
