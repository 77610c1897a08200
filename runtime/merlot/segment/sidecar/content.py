"""The footer of a sidecar as typed values. FORMAT.md §8."""

from __future__ import annotations

from pydantic import Field

from merlot.segment.metadata import BufferRef, ColumnMetadata, Model, StarTreeMetadata


class SidecarColumn(Model):
    """One column of a sidecar: its indexes, or the whole column."""

    name: str
    buffers: dict[str, BufferRef] = Field(default_factory=dict)
    """Buffers of the indexes, if the column itself is read from the segment."""
    stored: ColumnMetadata | None = None
    """The column stored anew, with a dictionary and with its indexes."""


class LeftOut(Model):
    """Part of a plan that cannot be made of these rows, and is not tried again."""

    what: str
    why: str


class SidecarContent(Model):
    """Content of a sidecar's footer."""

    num_docs: int
    added: tuple[SidecarColumn, ...] = ()
    derived: tuple[ColumnMetadata, ...] = ()
    """Derived columns that the segment lacks."""
    star_trees: tuple[StarTreeMetadata, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class SidecarIdentity(Model):
    """Segment and configuration that a sidecar was made for."""

    name: str
    table: str
    segment_crc: int
    config: str
    """Digest of the plan."""
