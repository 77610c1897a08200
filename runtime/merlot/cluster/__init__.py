"""Shared state: its records, their paths, and the one way to change them.

Owns the records, the immutable views and the mutations. Must not import the engine or decide anything: decisions are
the controller's. Calls block; never make them on an event loop's thread.
"""
