"""Star-trees of a segment: documents that aggregate its rows, and a tree that finds the documents of a query.

`documents` aggregates, `build` makes the tree, `tree_writer` writes it, `tree` reads it, `rendering` shows it.
FORMAT.md §5.14. A tree is built and written by one thread; a tree that is read is immutable and safe on any thread.
"""
