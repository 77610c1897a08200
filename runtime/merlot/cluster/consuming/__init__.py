"""Segments of streams: their names, and the transactions by which they begin, end and follow each other (ADR 23).

Every partition of a stream is a chain of segments without a gap or an overlap, whose last one is open. Pure functions
over a view; `commits` applies them. Who decides that one shall begin or end is elsewhere: the controller, the replicas.
"""
