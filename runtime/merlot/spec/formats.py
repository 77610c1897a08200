"""File formats of batch sources. They are apart from the models, whose library is slow to import."""

from enum import StrEnum


class BatchFormat(StrEnum):
    """File format of a batch source. JSON is JSON lines: one object per line."""

    PARQUET = "PARQUET"
    ORC = "ORC"
    CSV = "CSV"
    JSON = "JSON"
