"""The protocol between a broker and a server: requests, answers, and the channels that carry them.

Owns the messages, their bytes (`codec`: a JSON header, Arrow IPC for rows), the frames that travel over TCP (`frames`,
`connection`), and both ends (`client`, `endpoint`). Does not know the meaning of a query. Threading rule: messages,
codec and frames are free of threads; channels and endpoints belong to one event loop.
"""
