"""HTTP as every role serves it: one way to listen and to end, health for probes, metrics for Prometheus, and
bounds on what a client may hold.

Knows no role: paths and answers are theirs. Used on the event loop that started it.
"""
