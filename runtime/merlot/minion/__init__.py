"""A minion: runs tasks that change segments, away from the servers that answer queries.

Owns the worker loop (lease, run, report) and the process around it. No kind of task exists yet. Threading rule: the
loop belongs to the event loop of the role; tasks and the metastore run in threads.
"""
