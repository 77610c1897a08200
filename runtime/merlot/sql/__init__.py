"""SQL text to a typed tree, without the engine.

Owns the dialect (the only importer of sqlglot), the function signatures and binding. Must not import
kernels, segments or numpy: the control plane loads it. Pure functions over immutable values; safe on any thread.
"""
