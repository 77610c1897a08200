"""Stages above the leaves: what servers are asked, and what an engine over Arrow makes of their answers (ADR 39).

Owns the cut between leaves and the rest, the SQL that the engine gets, and its limits. Knows no servers.
"""
