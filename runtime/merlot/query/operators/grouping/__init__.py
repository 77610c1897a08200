"""GROUP BY over the selected docs of one segment: one task, one thread. `choose` picks one of the other modules."""
