"""Shortcuts: execution paths that only save time.

Each shortcut takes over at one call, or returns None and leaves the query to the general code, whose answer is the
same. General code knows that call and nothing else of a shortcut. What a shortcut derives from a plan is kept in the
plan's `memo`.
"""
