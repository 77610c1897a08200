"""Values of rows in memory: as vectors, as small numbers (`encoding`), and by equal keys (`groups`).

Functions, aggregates, queries and merges compute with them. This package must not know segments or plans. Vectors are
borrowed and never written to, so any thread may read them; a table of groups belongs to one task and its thread.
"""
