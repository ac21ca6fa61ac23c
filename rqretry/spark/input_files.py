"""Files that ingest reads: their format, their rows, and a name for their content."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from rqretry.core.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.spark.error_messages import gist

CORRUPT = "_corrupt_record"
"""Where Spark puts a line that is not a row."""
_ENDINGS = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson"),
}
FORMATS = tuple(_ENDINGS)
_SPLIT_BYTES = 32 * 1024 * 1024
_PLAN = {  # the same files must make the same partitions on every machine
    "spark.sql.files.maxPartitionBytes": str(_SPLIT_BYTES),
    "spark.sql.files.minPartitionNum": "4",
    "spark.sql.files.openCostInBytes": "1048576",
}


def format_of(path: str, given: str | None) -> str:
    """The format of files. Raises InvalidArgument."""
    if given is not None:
        if given not in FORMATS:
            refuse("format", given, f"must be one of {', '.join(FORMATS)}")
        return given
    name = path.rstrip("/*").lower()
    found = next((format_ for format_, endings in _ENDINGS.items() if name.endswith(endings)), None)
    if found is None:
        raise InvalidArgument(
            f"the name {show(path)} has no known extension: name the format, {', '.join(FORMATS)}"
        )
    return found


@contextmanager
def open_files(
    spark: SparkSession, path: str, format_: str, schema: str | None
) -> Iterator[DataFrame]:
    """The rows of files, cut into partitions in the same way everywhere.

    Raises:
        ConfigError: They cannot be read.
    """
    before = {name: spark.conf.get(name, None) for name in _PLAN}
    for name, value in _PLAN.items():
        spark.conf.set(name, value)
    try:
        yield _read(spark, path, format_, schema)
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def fingerprint_of_files(
    rows: DataFrame, topic: str, namespace: str, columns: Mapping[str, str | None]
) -> str:
    """A name that changes with the files, with where they go and with what is made of them."""
    parts = [topic, namespace, *(f"{part}={column}" for part, column in sorted(columns.items()))]
    for uri in sorted(rows.inputFiles()):
        system, path = fs.FileSystem.from_uri(uri)
        info = system.get_file_info(path)
        parts.append(f"{uri} {info.size} {info.mtime_ns}")
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _read(spark: SparkSession, path: str, format_: str, schema: str | None) -> DataFrame:
    if schema is not None and format_ == "parquet":
        raise InvalidArgument("schema: Parquet files have their own schema; remove it")
    try:
        if format_ == "parquet":
            return spark.read.parquet(path)
        reader = spark.read.option("header", "true")
        if schema is None and format_ == "json":
            return reader.json(path)  # Spark adds the column for broken lines where there are any
        if schema is None:
            fields = reader.option("inferSchema", "true").csv(path).schema.fields
        else:
            fields = reader.schema(schema).format(format_).load(path).schema.fields
        columns = StructType([*fields, StructField(CORRUPT, StringType())])
        return reader.schema(columns).format(format_).load(path)
    except AnalysisException as error:
        raise ConfigError(f"{show(path)} cannot be read as {format_}: {gist(error)}") from None
