"""From a query's text to its plan: by text, by shape, or from the start; EXPLAIN. Pure, but for its caches."""
