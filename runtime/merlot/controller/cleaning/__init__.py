"""Deletion of files and records that nothing refers to any more, once their grace period is over. Only the leader's
thread uses it.
"""
