"""Who calls, what they may do, and what is recorded about it; and TLS, below everything that is called.

`access` and everything it needs are pure values, safe on every thread; authenticators, the door and the audit log
belong to one event loop each and leave hashing and files to threads. Certificates are safe on every thread.
"""
