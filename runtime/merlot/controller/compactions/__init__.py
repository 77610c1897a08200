"""Which segments of upsert tables are rewritten without the rows that were replaced, and when."""
