"""Queries of more than one stage: a syntax tree to the typed tree of `tree.relations`. Pure, safe on any thread."""
