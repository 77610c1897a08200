"""Placement of segments: which servers hold them, which segments move, and which are too old. Pure, but for the
rebalance service.
"""
