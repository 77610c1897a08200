"""Segments of streams: their names, and the transactions by which they begin, end and follow each other (ADR 23).

Every partition of a stream is a chain of segments without a gap or an overlap, whose last one is open. Pure functions
over a view; `commits` applies them. The controller and the replicas decide when a segment begins or ends.
"""
