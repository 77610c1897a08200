"""The footer of a sidecar as typed values. FORMAT.md §8."""

from __future__ import annotations

from pydantic import Field

from merlot.segment.metadata import BufferRef, ColumnMetadata, Model, StarTreeMetadata


class SidecarColumn(Model):
    """What a sidecar has of one column: its indexes, or all of it."""

    name: str
    buffers: dict[str, BufferRef] = Field(default_factory=dict)
    """Of indexes, if the column itself is read from the segment."""
    stored: ColumnMetadata | None = None
    """The column stored anew, with a dictionary, and with its indexes."""


class LeftOut(Model):
    """What could not be made of these rows, and will not be tried again."""

    what: str
    why: str


class SidecarContent(Model):
    """What a footer's content says."""

    num_docs: int
    added: tuple[SidecarColumn, ...] = ()
    derived: tuple[ColumnMetadata, ...] = ()
    """Derived columns that the segment lacks."""
    star_trees: tuple[StarTreeMetadata, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class SidecarIdentity(Model):
    """Of which segment it is, and by what configuration it was made."""

    name: str
    table: str
    segment_crc: int
    config: str
    """Digest of the plan."""
