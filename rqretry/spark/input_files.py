"""Files that ingest reads: their format, their rows, and a name for their content."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from rqretry.core.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.core.suggestion import did_you_mean
from rqretry.spark.error_messages import gist
from rqretry.spark.hadoop_folder import versions_of

CORRUPT = "_corrupt_record"
"""Where Spark puts a line that is not a row."""
_ENDINGS = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson"),
}
FORMATS = tuple(_ENDINGS)
_COMMON = (
    "encoding lineSep multiLine dateFormat timestampFormat timestampNTZFormat locale samplingRatio"
    " ignoreCorruptFiles ignoreMissingFiles pathGlobFilter recursiveFileLookup modifiedBefore"
    " modifiedAfter"
)
_OPTIONS = {
    "csv": "sep quote escape charToEscapeQuoteEscaping unescapedQuoteHandling comment header"
    " inferSchema preferDate enforceSchema nullValue emptyValue nanValue positiveInf negativeInf"
    " ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace maxColumns maxCharsPerColumn " + _COMMON,
    "json": "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames"
    " allowSingleQuotes allowNumericLeadingZeros allowNonNumericNumbers"
    " allowBackslashEscapingAnyCharacter allowUnquotedControlChars dropFieldIfAllNull " + _COMMON,
    "parquet": "mergeSchema datetimeRebaseMode int96RebaseMode ignoreCorruptFiles"
    " ignoreMissingFiles pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter",
}
"""Spark's options for reading each format. Not those by which rows would vanish, such as mode."""
_RFC_4180 = {"header": "true", "inferSchema": "true", "escape": '"', "multiLine": "true"}
"""CSV as the world writes it: a quoted value may hold line breaks, and a quote in it is doubled."""
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


_OTHER_HEADER = re.compile(
    r"CSV header does not conform to the schema\.\s+Header: (.*)\s+Schema: (.*)(?:\s+.*)?"
    r"\s+CSV file: (\S+)"
)


@contextmanager
def open_files(
    spark: SparkSession,
    path: str,
    format_: str,
    schema: str | None,
    options: Mapping[str, str],
) -> Iterator[DataFrame]:
    """The rows of files, cut into partitions in the same way everywhere.

    Raises:
        ConfigError: They cannot be read.
        InvalidArgument: The format has no such option.
    """
    before = {name: spark.conf.get(name, None) for name in _PLAN}
    for name, value in _PLAN.items():
        spark.conf.set(name, value)
    try:
        yield _read(spark, path, format_, schema, options)
    except (PySparkException, Py4JError) as error:
        match = _OTHER_HEADER.search(str(error))
        if match is None:
            raise
        found, wanted, file = match.groups()
        raise ConfigError(
            f"the header of {file} is {show(found)}, and the columns are {show(wanted)}: give them"
            " in the order of the file, or read files with other columns apart"
        ) from None
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def fingerprint_of_files(
    rows: DataFrame, topic: str, namespace: str, how: Mapping[str, str | None]
) -> str:
    """A name that changes with the files, with where they go and with what is made of them."""
    parts = [topic, namespace, *(f"{part}={value}" for part, value in sorted(how.items()))]
    parts += versions_of(rows.sparkSession, sorted(rows.inputFiles()))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _read(
    spark: SparkSession, path: str, format_: str, schema: str | None, given: Mapping[str, str]
) -> DataFrame:
    if schema is not None and format_ == "parquet":
        raise InvalidArgument("schema: Parquet files have their own schema; remove it")
    options = _checked(format_, given)

    def reader() -> DataFrameReader:
        return spark.read.format(format_).options(**options)

    try:
        if format_ == "parquet" or (format_ == "json" and schema is None):
            return reader().load(path)  # of JSON Spark adds the column for broken lines if need be
        if schema is None:
            fields = reader().load(path).schema.fields
            options = _header(reader(), path, [column.name for column in fields]) | options
        else:
            fields = reader().schema(schema).load(path).schema.fields
            options = {"enforceSchema": "false"} | options
        columns = StructType([*fields, StructField(CORRUPT, StringType())])
        return reader().schema(columns).load(path)
    except (AnalysisException, IllegalArgumentException) as error:
        raise ConfigError(f"{show(path)} cannot be read as {format_}: {gist(error)}") from None


def _header(reader: DataFrameReader, path: str, names: list[str]) -> dict[str, str]:
    """Files with other columns are refused, unless Spark made names up: one is missing or twice."""
    first = reader.options(header="false", inferSchema="false").load(path).head()
    return {"enforceSchema": "false"} if first is not None and list(first) == names else {}


def _checked(format_: str, given: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): name for name in _OPTIONS[format_].split()}
    options = dict(_RFC_4180) if format_ == "csv" else {}
    for name, value in given.items():
        if name.lower() not in known:
            hint = did_you_mean(name, known.values())
            refuse("option", name, f"is not an option of {format_}{hint}")
        options[known[name.lower()]] = value
    return options
