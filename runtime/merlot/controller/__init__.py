"""Assignment of segments, retention and repair, and the endpoint through which users say what they want.

Decisions are pure functions of a view, the live servers and the time; one loop carries them out under a lease. This
package must not load the engine or touch segment bytes. The loop and the endpoint are asyncio; metastore calls go
through threads.
"""
