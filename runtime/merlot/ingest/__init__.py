"""From source rows to segments: reading files (`source`), conforming rows to a schema, grouping them, building segments
without Spark.

Owns casts, the count and the samples of rows that do not fit, and the names of batch segments. Must not know Spark,
HTTP or cluster state. Pure functions over Arrow tables: safe on any thread.
"""
