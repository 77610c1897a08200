"""Logical rewriting of a statement of several stages, before it is cut into leaves: the same answer from fewer rows.

Owns the rules (`rules.RULES`), one module each, and the order in which they run. A rule takes a statement and returns
one with the same answer, or the very statement if it changes nothing. Null tests name the bits that leaves bring before
any rule runs (`null_bits`), so that rules need not know whether null handling is on. Pure; knows no servers.
"""
