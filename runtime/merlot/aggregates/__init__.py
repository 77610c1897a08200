"""Aggregate functions: one object per aggregate, which `registry` finds by its name.

An aggregate (`function.AggregationFunction`) owns its signature, the columns of its state, how it accumulates values
and states (`function.State`), how a state becomes an answer, and its bytes where Pinot has a form for them. Knows no
query, plan or segment: queries, rollups and star-trees feed it. Functions are immutable and shared by all threads; a
state belongs to one task on one thread.
"""
