"""Base of all manifest models: frozen, camelCase outside, snake_case inside, unknown fields refused.

A docstring under a field is its description in the CRD. Enum values are the words that users write. A model's validator
is built when it is first used: a process uses few of the models that it imports.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel


class SpecModel(BaseModel):
    """Part of a manifest."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler, /) -> Any:
        """Add the docstrings of fields, which only CRDs and descriptions of APIs show. With `use_attribute_docstrings`,
        pydantic would read them whenever a class is made, in a quarter of the time that all models take to load."""
        made = handler(schema)
        properties = handler.resolve_ref_schema(made).get("properties", {})
        texts = {name: text for base in reversed(cls.__mro__) for name, text in _docstrings(base).items()}
        for name, field in cls.model_fields.items():
            if name in texts and field.description is None:
                described = properties[field.alias or name]
                if handler.resolve_ref_schema(described).get("description") != texts[name]:
                    described["description"] = texts[name]
        return made


def _docstrings(model: type) -> Mapping[str, str]:
    """Return the docstrings of the fields that a model declares itself; none if its source is not there."""
    is_model = issubclass(model, SpecModel) and model is not SpecModel
    return _docstrings_of(model.__module__).get(model.__qualname__, {}) if is_model else {}


@cache
def _docstrings_of(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the fields of each class of a module."""
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    return {node.name: dict(_documented(node.body)) for node in classes}


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the name of each field that a docstring follows, and the docstring."""
    for field, after in pairwise(body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
