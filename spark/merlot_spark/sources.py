"""Files as Spark DataFrames, so that no value is lost or guessed on the way: bad lines stay visible.

CSV values stay text: the table's schema decides what they are. Lines that are no record arrive in `_corrupt_record`.
Files in S3 are read by pyarrow: see object_sources.
"""

from __future__ import annotations

from pyspark import RDD
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from merlot.errors import InvalidInputError, NotFoundError
from merlot.ingest.transform import CORRUPT_RECORD
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion, CsvOptions
from merlot.spec.schema import TableSchema
from merlot_spark import object_sources


def read(spark: SparkSession, source: BatchIngestion, schema: TableSchema) -> DataFrame:
    """Open a batch source; NotFoundError if nothing is there, InvalidInputError if it cannot be read as its format."""
    try:
        match source.format:
            case BatchFormat.PARQUET | BatchFormat.ORC:
                if source.source_uri.startswith(object_sources.SCHEMES):
                    return object_sources.read_columns(spark, source, schema)
                return spark.read.format(source.format.lower()).load(source.source_uri)
            case BatchFormat.JSON:
                options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT_RECORD}
                return spark.read.options(**options).json(_lines(spark, source))
            case BatchFormat.CSV:
                return _read_csv(spark, _lines(spark, source), source.csv or CsvOptions(), schema)
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        if "PATH_NOT_FOUND" in reason:
            raise NotFoundError(f"no source files uri={source.source_uri}") from error
        raise InvalidInputError(f"cannot read source uri={source.source_uri} reason={reason}") from error


def _lines(spark: SparkSession, source: BatchIngestion) -> str | RDD[str]:
    """What Spark's text readers take: a path that they know, or the lines."""
    is_object = source.source_uri.startswith(object_sources.SCHEMES)
    return object_sources.read_lines(spark, source) if is_object else source.source_uri


def _read_csv(spark: SparkSession, lines: str | RDD[str], csv: CsvOptions, schema: TableSchema) -> DataFrame:
    options = {
        "header": str(csv.header).lower(),
        "sep": csv.delimiter,
        "nullValue": csv.null_value,
        "escape": '"',
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT_RECORD,
        # Pruned columns are not parsed, so that short and long lines would pass.
        "columnPruning": "false",
    }
    names = spark.read.options(**options).csv(lines).columns if csv.header else schema.names
    fields = [StructField(name, StringType()) for name in [*names, CORRUPT_RECORD]]
    return spark.read.options(**options).schema(StructType(fields)).csv(lines)
