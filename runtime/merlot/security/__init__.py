"""Who calls, what they may do, and what is recorded about it.

`access` and everything it needs are pure values, safe on every thread; authenticators, the door and the audit log
belong to one event loop each and leave hashing and files to threads.
"""
