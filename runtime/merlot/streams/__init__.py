"""Where messages come from: the interfaces of a stream, and the streams that are built in.

Owns partitions, offsets and the reading of messages as columns. Must not know what is in a message, tables or cluster
state. A stream may be used from any thread; a reader by one thread at a time.
"""
