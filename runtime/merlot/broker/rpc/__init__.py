"""Answer queries over gRPC as Pinot's broker does: `PinotQueryBroker.Submit`.

`messages` has the messages of Pinot's broker.proto, `blocks` the encodings of rows, and `endpoint` the port. Answers
equal those of the HTTP paths, but come in blocks of rows that the client takes at its own pace. Runs on the broker's
event loop; blocks are made in threads.
"""
