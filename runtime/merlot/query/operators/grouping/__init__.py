"""GROUP BY over the selected docs of a segment: `choose` picks a strategy, and the module of its name implements it."""
