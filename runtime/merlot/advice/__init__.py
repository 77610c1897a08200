"""Which indexes, sort order and star-trees a table should have, by what is asked of it and what its segments hold.

`workload` reads logged queries, `candidates` (pure) says what might help them, `trial` builds that beside a sample of
the table's own segments and runs the queries with and without, `choice` (pure) takes what pays, `change` writes it into
a manifest. Nothing here touches a cluster. One thread: times
are its CPU time.
"""
