"""Arrow and numpy types that carry each data type between rows, segments and queries."""

from typing import Any

import numpy as np
import pyarrow as pa

from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

ARROW_TYPES: dict[TypeName, pa.DataType] = {
    TypeName.INT: pa.int32(),
    TypeName.LONG: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
    TypeName.BIG_DECIMAL: pa.string(),
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.TIMESTAMP: pa.timestamp("ms"),
    TypeName.STRING: pa.string(),
    TypeName.JSON: pa.string(),
    TypeName.BYTES: pa.binary(),
}
"""Types of rows as a builder takes them; BIG_DECIMAL is plain decimal text."""

STORED_DTYPES: dict[TypeName, np.dtype[Any]] = {
    TypeName.INT: np.dtype("<i4"),
    TypeName.LONG: np.dtype("<i8"),
    TypeName.FLOAT: np.dtype("<f4"),
    TypeName.DOUBLE: np.dtype("<f8"),
    TypeName.BOOLEAN: np.dtype("<i4"),
    TypeName.TIMESTAMP: np.dtype("<i8"),
}
"""Types of fixed-width values as a segment stores them. A type that is missing here has variable width."""

STORED_NAMES: dict[TypeName, tuple[str]] = {name: (dtype.str[1:],) for name, dtype in STORED_DTYPES.items()}
"""Names in a footer of the dtypes of these values."""


def arrow_type(field: FieldSpec) -> pa.DataType:
    """Return the type of the column of rows that `build_segment` takes for this field."""
    value_type = ARROW_TYPES[field.type]
    return pa.list_(value_type) if field.multi_value else value_type


def arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the schema of the rows that `build_segment` takes."""
    return pa.schema([pa.field(field.name, arrow_type(field)) for field in schema.fields])


def is_fixed_width(type_name: TypeName) -> bool:
    """Return True if values are numbers in an array, rather than strings of bytes."""
    return type_name in STORED_DTYPES


def stored_arrow_type(type_name: TypeName, *, large: bool = False) -> pa.DataType:
    """Return the Arrow type of variable-width values as a segment returns them; `large` past 2**31 bytes."""
    if type_name is TypeName.BYTES:
        return pa.large_binary() if large else pa.binary()
    return pa.large_string() if large else pa.string()
