"""Decode payloads of messages into columns, a batch at a time: JSON, CSV, Avro, Protobuf, Arrow.

A decoder finds the values that a table wants; `ingest.transform` casts them to a column's type, as with files. A batch
is decoded at once. If that fails, the messages that are no records are found, so that a poison message costs its batch
time and nothing else. A decoder belongs to one thread.
"""
