"""Choose the servers to ask for each segment, and the segments that a query need not ask for.

Pure, but for `health`, which remembers calls, and users' own pruners. `routes` builds an immutable snapshot of a
table's routes; its docstring states the rules, and the modules for single rules. `health` tells which servers may be
asked; `pruning` chooses among a snapshot's segments by a query's filter.
"""
