"""Turn source rows into segments: read files (`source`), conform rows to a schema, group them, and build segments
without Spark.

Owns casts, the count and the samples of rows that do not fit, and the names of batch segments. Must not know Spark,
HTTP or cluster state. Pure functions over Arrow tables: safe on any thread.
"""
