"""A minion: runs tasks that change segments, away from the servers that answer queries.

Owns the worker loop (lease, run, report), the kinds of tasks, and the process around them. Must not decide what is to
be done: the controller does, and queues it. Threading rule: the loop belongs to the event loop of the role; tasks run
in threads of the worker's own, one each, and so does what they ask of the metastore.
"""
