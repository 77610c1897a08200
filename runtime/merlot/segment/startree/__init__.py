"""Star-trees of a segment: documents that are aggregates of its rows, and a tree that finds those of a query.

`documents` aggregates, `build` makes the tree, `written` is its form in a file, `tree` reads it, `drawing` shows it.
FORMAT.md §5.14. Any thread builds and writes a tree that is its own; what is read is immutable and any thread's.
"""
