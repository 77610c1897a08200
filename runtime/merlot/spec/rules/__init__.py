"""Rules between the fields of a manifest, each stated once for Python and for an API server: see `rule`."""
