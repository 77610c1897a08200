"""A query's plan as a tree: its nodes, how it is made, rules that rewrite filters, expressions, binding. Pure."""
