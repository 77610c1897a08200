"""From the payloads of messages to columns, a batch at a time: JSON, CSV, Avro, Protobuf, Arrow.

A decoder finds the values that a table wants; what they become in a column's type is for `ingest.transform` to say, as
with files. A batch is decoded at once; where that fails, the messages that are no records are found, so that a poison
message costs its batch time and nothing else. A decoder belongs to one thread.
"""
