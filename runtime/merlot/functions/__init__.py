"""Scalar functions of SQL over rows: one object per function, in families, looked up by name in `registry`.

A function (`function.ScalarFunction`) owns its signature, its rules for nulls and for lists, its cost and its code. A
family is a module, and a line of the registry. `evaluate` applies expressions to rows. Binding works constants out by
it too, so a constant and a column of that constant never differ. The package knows no query, plan or segment. Functions
are immutable and shared by all threads.
"""
