"""The base of every declared model: frozen, camelCase outside, snake_case inside, unknown fields refused.

A docstring under a field is its description in the CRD. Enum values are what users write.
"""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class SpecModel(BaseModel):
    """A part of a manifest."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
    )
