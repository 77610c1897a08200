"""One module per index, each in three parts: Estimate (what it would cost), Write, Read.

Owns serialized forms; must not choose between them (`segment.build.encoding` does). Readers are immutable and safe on
any thread.
"""
