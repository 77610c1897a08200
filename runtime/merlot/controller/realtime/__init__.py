"""Streams, as the controller sees to them: which partitions begin, where they are consumed, when they shall end."""
