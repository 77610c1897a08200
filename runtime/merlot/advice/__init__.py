"""Recommend indexes, a sort order and star-trees for a table, from its logged queries and its segments.

`workload` plans the logged queries, `candidates` (pure) proposes changes, `trial` builds each proposal beside a sample
of the table's segments and times the queries with and without it, `choice` (pure) selects the proposals that pay, and
`change` writes them into a manifest. Nothing here touches a cluster. Single-threaded: all times are the CPU time of the
calling thread.
"""
