"""What many values come to: one object per aggregate, found by its name in `registry`.

An aggregate (`function.AggregationFunction`) owns its signature, the columns of its state, how values and states are
taken in (`function.State`), how a state becomes an answer, and its bytes where Pinot has a form for them. Knows no
query, plan or segment: queries, rollups and star-trees feed it. Functions are immutable and shared by all threads; a
state belongs to one task on one thread.
"""
