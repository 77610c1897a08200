"""`kubectl merlot`: what a person wants to see and ask, by way of kubectl, so with the rights and contexts they have.

Owns the command line and how things are shown; decides nothing and changes nothing in the cluster. Synchronous, one
thread; port-forwards are processes that end with the command.
"""
