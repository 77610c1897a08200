"""Compatibility with Pinot's controller: its configs, its JSON about a cluster, its reading and writing paths.

`configs` converts Pinot's configs to manifests; `config_json` and `schema_json` convert back; `cluster_json` and
`halves` describe tables, segments and instances; `reads` and `writes` answer requests. All but the last two are pure.
HTTP, and how manifests are applied, belong to the controller; queries belong to the broker. `reads` and `writes` block,
and any thread may call them.
"""
