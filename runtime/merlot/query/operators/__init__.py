"""Operators of a leaf over its docs: grouping, selection, order."""
