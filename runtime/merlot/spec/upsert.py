"""The UpsertConfig manifest: what tables say of upserts, in an object of its own that several of them may name."""

from typing import Literal

from merlot.spec.model import SpecModel
from merlot.spec.table import ObjectMeta
from merlot.spec.upserting import UpsertSpec

KIND = "UpsertConfig"


class UpsertConfig(SpecModel):
    """How later rows replace earlier ones; a Table names it in spec.upsert.configRef."""

    api_version: Literal["merlot.dev/v1alpha1"]
    """Version of this form."""
    kind: Literal["UpsertConfig"]
    """Kind of object."""
    metadata: ObjectMeta
    """Name and labels."""
    spec: UpsertSpec
    """Which row of a key wins, for how long its key is remembered, and what is kept on disk."""
