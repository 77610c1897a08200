"""Bind queries of several stages: a syntax tree to the typed tree of `tree.relations`. Pure, safe on any thread.

`bind` binds statements and relations, `slots` windows and subqueries inside expressions; `scope` resolves names,
`grouping` binds GROUP BY, `joins` checks joins, and `rules` checks clauses against each other.
"""
