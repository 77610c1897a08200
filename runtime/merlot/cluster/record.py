"""Base of all records: versioned models that ignore fields that they do not know, and keep them when rewritten."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from merlot.cluster.packing import packed, unpacked
from merlot.errors import CorruptionError


class Record(BaseModel):
    """Base of all records: frozen, camelCase in JSON, unknown fields kept, validators built at the first use."""

    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    def to_bytes(self) -> bytes:
        """Return plain JSON without defaults."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        """Parse a record; raise CorruptionError, naming the path, if the bytes are not such a record."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise CorruptionError(f"record cannot be read path={path} problem={error.errors()[0]['msg']!r}") from error


class PackedRecord(Record):
    """A compressed record of many similar entries."""

    def to_bytes(self) -> bytes:
        return packed(super().to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        return super().from_bytes(unpacked(data, path), path)
