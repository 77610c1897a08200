"""A table's segments: one root's view, mutations with preconditions, the transaction that swaps the root."""
