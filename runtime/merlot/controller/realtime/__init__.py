"""Streams from the controller's view: which partitions begin, which servers consume them, and when segments end."""
