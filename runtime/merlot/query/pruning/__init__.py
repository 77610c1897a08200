"""Pruning of segments that a filter cannot match, from statistics of all segments at once, without opening any.

Owns the statistics as arrays and the evaluation of filters over them; must not read segments' rows, nor know where the
statistics come from (records on a broker, footers on a server). Immutable: any thread.
"""
