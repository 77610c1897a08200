"""Stored forms of columns, one module each, in parts: Estimate (sizes), Write, Check, Read.

Forms that any column may have (dictionary, ids, raw values, offsets, nulls, zones) are called by `segment`; indexes
that a table may ask for are found by their names (`kind`, `registry`). Owns serialized forms; must not choose the
encoding of a column (`segment.build.encoding` does). Readers are immutable and safe on any thread.
"""
