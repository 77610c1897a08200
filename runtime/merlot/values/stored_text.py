"""Decode text that records store: base64 and JSON objects. Text that no writer wrote raises CorruptionError, never the
decoder's own error.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from merlot.errors import CorruptionError


def stored_bytes(text: str, what: str) -> bytes:
    """Return the bytes of base64 text; raise CorruptionError, naming `what`, for any other text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptionError(f"{what} cannot be read, it is not base64 cause={error}") from error


def stored_object(text: str, what: str) -> dict[str, Any]:
    """Return a JSON object; raise CorruptionError, naming `what`, for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{what} cannot be read, it is not JSON cause={error}") from error
    if not isinstance(value, dict):
        raise CorruptionError(f"{what} cannot be read, it is not an object type={type(value).__name__}")
    return value
