"""UpsertConfig manifest: upsert settings in an object of their own, which several tables may name."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from merlot.spec.model import SpecModel
from merlot.spec.table import ObjectMeta
from merlot.spec.upserting import UpsertSpec

KIND = "UpsertConfig"


Partition = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,5})$", max_length=6)]
Offset = Annotated[int, Field(ge=0, le=2**62)]


class BackfillSpec(SpecModel):
    """Backfill, which reads rows whose keys may have expired, once. Meanwhile keys do not expire, and the keys of
    stored rows are loaded again."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the backfill. A new name requests another backfill, once this one is done."""
    table: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Table, which names this UpsertConfig."""
    from_offsets: Annotated[Mapping[Partition, Offset], Field(min_length=1, max_length=1024)] | None = None
    """Offsets from which partitions of the stream are read again, by partition number. If left out, rows are produced
    into the stream meanwhile."""
    loaded: bool = False
    """If fromOffsets is left out: true once everything has been produced; everything in the stream by then is
    loaded."""
    ignore_memory: bool = False
    """True starts without waiting until servers have memory for the keys of all stored rows."""

    @property
    def offsets(self) -> Mapping[int, int] | None:
        """`fromOffsets` by partition number."""
        if self.from_offsets is None:
            return None
        return {int(partition): offset for partition, offset in self.from_offsets.items()}


class UpsertConfigSpec(UpsertSpec):
    """Settings that decide which row of a key wins, how long its key is remembered, what is kept on disk, and what is
    loaded again."""

    backfill: BackfillSpec | None = None
    """Backfill to run. If it is removed while it runs, it ends early, and keys expire again."""


class UpsertConfig(SpecModel):
    """How later rows replace earlier rows; a Table names it in spec.upsert.configRef."""

    api_version: Literal["merlot.dev/v1alpha1"]
    """Version of the API."""
    kind: Literal["UpsertConfig"]
    """Kind of object."""
    metadata: ObjectMeta
    """Name and labels."""
    spec: UpsertConfigSpec
    """Settings that decide which row of a key wins, how long its key is remembered, what is kept on disk, and what is
    loaded again."""
