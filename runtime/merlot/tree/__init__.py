"""The typed tree of a query: types (`types`), nodes of one stage (`nodes`) and of several (`relations`), and JSON
(`tree_json`).

`sql` makes such trees, and `query` plans and runs them; this package knows neither SQL text nor columns of values.
Trees are immutable, so any thread may share them.
"""
