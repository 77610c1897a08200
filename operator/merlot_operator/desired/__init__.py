"""What there should be: demand, sizes and batch runs, as pure functions; the objects are in `manifests`."""
