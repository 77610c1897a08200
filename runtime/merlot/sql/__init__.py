"""SQL text to a typed tree.

Owns the dialect (the only importer of sqlglot), and binding, by the signatures that `functions` and `aggregates` have.
Must not know segments or plans. Pure functions over immutable values; safe on any thread.
"""

from merlot.sql.plain_sqlglot import prefer_sources

prefer_sources()
