"""A server: holds the segments it is assigned, and answers brokers' queries over them.

Owns local segment files, reference counts on open segments, the threads that queries run on, and the report of what is
loaded. Decides nothing about who holds what: that is the controller's. Threading rule: state belongs to the event loop
of the role; files, the metastore and kernels are called in threads, and results are handed back to the loop.
"""
