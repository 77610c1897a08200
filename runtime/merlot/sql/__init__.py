"""SQL text to a typed tree.

Owns reading (`lexer`, `parser`, the nodes in `syntax`) and binding, by the signatures that `functions` and `aggregates`
have. Must not know segments or plans. Pure functions over immutable values; safe on any thread.
"""
