"""What one row comes to: one object per scalar function, in families, found by its name in `registry`.

A function (`function.ScalarFunction`) owns its signature, its rules for nulls and for lists, its cost and its code. A
family is a module, and a line of the registry. `evaluate` applies expressions to rows; binding works constants out by
it too, so a constant and a column of it never differ. Knows no query, plan or segment. Immutable, shared by all
threads.
"""
