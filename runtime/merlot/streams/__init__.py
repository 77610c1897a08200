"""Sources of messages: the interfaces of a stream, and the streams that are built in.

This package owns partitions, offsets and the reading of messages as columns. It must not know what is in a message, nor
tables or cluster state. A stream may be used from any thread; a reader by one thread at a time.
"""
