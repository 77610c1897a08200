"""One module per stored form, each in parts: Estimate (what it would cost), Write, Check, Read.

Forms that every column has (dictionary, ids, raw values, nulls, zones) are wired in `segment`; indexes that a table may
ask for are found by their names (`kind`, `registry`). Owns serialized forms; must not choose between them
(`segment.build.encoding` does). Readers are immutable and safe on any thread.
"""
