"""Star-trees of a segment: documents that aggregate its rows, and a tree that finds the documents of a query.

`documents` aggregates, `build` makes the tree, `written` is its form in a file, `tree` reads it, `drawing` shows it.
FORMAT.md §5.14. A tree is built and written by one thread; a tree that is read is immutable and safe on any thread.
"""
