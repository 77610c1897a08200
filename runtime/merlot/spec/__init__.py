"""Manifests that users declare, as frozen pydantic models, and what can be derived from them alone.

Owns validation, defaults, schema evolution and CRD generation. Does no I/O, except for the CRD writer; must not import
anything above it. Values are immutable and safe on any thread.
"""
