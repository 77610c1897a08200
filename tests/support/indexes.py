"""Every kind of index, for tests of what all of them have in common."""

from collections.abc import Collection
from typing import Any

from merlot.spec.indexing import INDEX_KINDS, IndexingSpec
from merlot.spec.schema import TableSchema


def every_index(schema: TableSchema, raw: Collection[str] = (), **others: Any) -> IndexingSpec:
    """Return a spec with each index on all columns that it takes. raw: columns without a dictionary, which get no index
    that needs one."""
    indexes = {
        kind: tuple(
            field.name
            for field in schema.fields
            if field.type in rule.types
            and (rule.takes_lists or not field.multi_value)
            and (field.name not in raw or field.type in rule.raw_types)
        )
        for kind, rule in INDEX_KINDS.items()
    }
    return IndexingSpec.model_validate({**indexes, "no_dictionary": tuple(raw), **others})
