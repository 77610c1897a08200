"""`kubectl merlot`: show and query tables by way of kubectl, with the user's own rights and contexts.

Owns the command line and how things are shown; decides nothing and changes nothing in the cluster. Synchronous, one
thread; port-forwards are processes that end with the command.
"""
