"""Merges: a pure generator that decides what to merge next and how far each level is, and the leader's loop around
it.
"""
