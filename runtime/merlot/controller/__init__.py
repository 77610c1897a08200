"""What a cluster should look like: assignment, retention, repair, and the endpoint where people say what they want.

Decisions are pure functions of a view, the live servers and the time; one loop runs them under a lease. Must not load
the engine or touch segment bytes. The loop and the endpoint are asyncio; metastore calls go through threads.
"""
