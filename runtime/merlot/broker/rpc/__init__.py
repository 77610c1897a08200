"""Queries over gRPC, as Pinot's broker takes them: `PinotQueryBroker.Submit`.

`messages` are those of Pinot's broker.proto, `blocks` the forms of rows, `endpoint` the port. It answers what the HTTP
paths answer, in blocks of rows that the client takes at its own pace. On the broker's event loop; blocks are made in
threads.
"""
