"""File formats of batch sources: apart from the models, whose library takes its time to load."""

from enum import StrEnum


class BatchFormat(StrEnum):
    """File formats of batch sources. JSON is JSON lines: one object per line."""

    PARQUET = "PARQUET"
    ORC = "ORC"
    CSV = "CSV"
    JSON = "JSON"
