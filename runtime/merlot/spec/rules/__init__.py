"""Rules between the fields of a manifest. Each is stated once, for Python and for an API server: see `rule`."""
