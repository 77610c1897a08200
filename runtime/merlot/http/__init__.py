"""The HTTP that all roles share: listening and ending, health for probes, metrics for Prometheus, and limits on
clients.

Knows no role: paths and answers are theirs. Used on the event loop that started it.
"""
