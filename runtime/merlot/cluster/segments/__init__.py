"""Segments of a table: the view of one root, mutations with preconditions, and the transaction that swaps the root."""
