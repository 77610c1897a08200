"""Every role in one process, on one event loop, over a local folder.

Owns nothing but the wiring: the roles are those of a cluster. Threading rule: one event loop; each role keeps its own
threads.
"""
