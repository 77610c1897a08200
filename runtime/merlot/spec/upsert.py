"""The UpsertConfig manifest: what tables say of upserts, in an object of its own that several of them may name."""

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
    """Rows of keys that may have expired are read, once: keys do not expire meanwhile, and what is stored is known
    again."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Another name requests another backfill, once this one is done."""
    table: Annotated[str, Field(min_length=1, max_length=253)]
    """The Table, which names this UpsertConfig."""
    from_offsets: Annotated[Mapping[Partition, Offset], Field(min_length=1, max_length=1024)] | None = None
    """Where partitions of the stream are read from again, by number; if left out, rows are produced into the stream
    meanwhile."""
    loaded: bool = False
    """If fromOffsets is left out: true once everything has been produced; what the stream has by then is loaded."""
    ignore_memory: bool = False
    """True does not wait until servers have memory for the keys of all stored rows."""

    @property
    def offsets(self) -> Mapping[int, int] | None:
        """`fromOffsets` by number."""
        return None if self.from_offsets is None else {int(one): offset for one, offset in self.from_offsets.items()}


class UpsertConfigSpec(UpsertSpec):
    """Which row of a key wins, for how long its key is remembered, what is kept on disk, and what is loaded again."""

    backfill: BackfillSpec | None = None
    """A backfill to run. If removed while it runs, it ends early, and keys expire again."""


class UpsertConfig(SpecModel):
    """How later rows replace earlier ones; a Table names it in spec.upsert.configRef."""

    api_version: Literal["merlot.dev/v1alpha1"]
    """Version of the API."""
    kind: Literal["UpsertConfig"]
    """Kind of object."""
    metadata: ObjectMeta
    """Name and labels."""
    spec: UpsertConfigSpec
    """Which row of a key wins, for how long its key is remembered, what is kept on disk, and what is loaded again."""
