"""Base of all manifest models: frozen, camelCase outside, snake_case inside, unknown fields refused.

A docstring under a field is its description in the CRD. Enum values are the words that users write.
"""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class SpecModel(BaseModel):
    """Part of a manifest."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
    )
