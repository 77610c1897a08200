"""Values of rows in memory: as vectors, as small numbers (`encoding`), and by equal keys (`groups`).

What functions, aggregates, queries and merges compute with; knows no segment and no plan. Vectors are borrowed and
never written to, tables of groups belong to one task: any thread may read the former, one thread has the latter.
"""
