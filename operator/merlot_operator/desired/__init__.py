"""Demand, sizes and batch runs that there should be, as pure functions. `manifests` makes objects of them."""
