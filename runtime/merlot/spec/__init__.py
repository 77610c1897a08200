"""What the user declares: manifests as frozen pydantic models, and what follows from them alone.

Owns validation, defaults, schema evolution and CRD generation. No I/O but the CRD writer's; must not import anything
above it. Immutable values; safe on any thread.
"""
