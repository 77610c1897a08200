"""SQL text to a typed tree.

Owns the dialect (the only importer of sqlglot), the signatures of scalar functions, and binding. Must not know segments
or plans. Pure functions over immutable values; safe on any thread.
"""
