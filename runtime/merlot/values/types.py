"""Names of the data types, shared by schemas, segments and SQL."""

from enum import StrEnum


class TypeName(StrEnum):
    """Base types, named as Pinot's `DataSchema.ColumnDataType`. UNKNOWN is the type of NULL; no column has it."""

    # Enum's own hash is written in Python, and dictionaries keyed by expressions hash the types of all their nodes.
    __hash__ = str.__hash__

    INT = "INT"
    LONG = "LONG"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    BIG_DECIMAL = "BIG_DECIMAL"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"
    STRING = "STRING"
    JSON = "JSON"
    BYTES = "BYTES"
    UNKNOWN = "UNKNOWN"
