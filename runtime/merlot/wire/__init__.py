"""How a broker and a server talk: requests, answers, and the channels that carry them.

Owns the messages, their bytes (`merlot.proto`, Arrow IPC for rows) and gRPC, which no other package may import. Knows
nothing of what a query means. Threading rule: messages and codec are free of threads; channels and endpoints belong to
one event loop.
"""
