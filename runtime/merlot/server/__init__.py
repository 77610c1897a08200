"""A server: holds the segments that it is assigned, and answers brokers' queries over them.

This package owns local segment files, reference counts on open segments, the threads that queries run on, and the
report of what is loaded. It must not decide which server holds what: the controller does. Threading rule: state belongs
to the event loop of the role; files, the metastore and kernels are called in threads, and results are handed back to
the loop.
"""
