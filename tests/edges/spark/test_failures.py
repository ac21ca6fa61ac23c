"""What Spark cannot do is one sentence of a command, and no Java stack comes before it."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rqretry.core.errors import ConfigError, RqretryError, TopicNotFound
from rqretry.spark.error_messages import plain_failures
from rqretry.testing.embedded_redis import EmbeddedRedis

STACK = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: {first}
\tat org.apache.spark.Errors.make(Errors.scala:1)
Caused by: java.lang.RuntimeException: {last}
\t... 3 more
"""


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        (
            STACK.format(first="[CANNOT_READ.FOOTER] file a is torn. SQLSTATE: KD001", last="b"),
            ConfigError,
            "Spark failed: file a is torn.",
        ),
        (STACK.format(first="thrown in awaitResult: ", last="b is gone"), ConfigError, "b is gone"),
        ("it just broke\nand more", ConfigError, "Spark failed: it just broke"),
        ("rqretry.core.errors.TopicNotFound: there is no topic 't'", TopicNotFound, "no topic 't'"),
        (
            STACK.format(first="[TASK_WRITE_FAILED] of a", last="No space left on device"),
            ConfigError,
            "Spark cannot write: No space left on device: make room where the output",
        ),
        (
            "calling o1.parquet.\n: java.lang.OutOfMemoryError: Java heap space",
            ConfigError,
            "raise spark.driver.memory",
        ),
        (
            STACK.format(first="[UNABLE_TO_ACQUIRE_MEMORY] of 65536 bytes", last="b"),
            ConfigError,
            "raise spark.driver.memory",
        ),
    ],
)
def test_an_error_of_spark_is_reported_by_its_cause(
    text: str, kind: type[RqretryError], shown: str
) -> None:
    with pytest.raises(kind) as raised, plain_failures():
        raise PySparkException(text)

    assert shown in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("request_parts", "shown"),
    [
        (["ingest", "{torn}", "t"], "torn.parquet"),
        (["ingest", "{rows}", "t", "--schema", "a int, b wat"], "wat"),
    ],
)
def test_what_spark_cannot_do_is_one_sentence(
    tmp_path: Path, request_parts: list[str], shown: str
) -> None:
    torn, rows = tmp_path / "torn.parquet", tmp_path / "rows.csv"
    torn.write_bytes(b"PAR1 torn")
    rows.write_text("a,b\n1,2\n")
    named = [word.format(torn=torn, rows=rows) for word in request_parts]
    with EmbeddedRedis() as server:
        ended = subprocess.run(  # it ends its session, which would be that of all tests here
            [sys.executable, "-m", "rqretry", "pipeline", *named, "--url", server.url],
            capture_output=True,
            text=True,
            check=False,
        )

    *before, line = ended.stderr.splitlines()
    assert ended.returncode == 1, ended.stderr
    assert line.startswith("Error: ")
    assert shown.lower() in line.lower()
    assert "bug" not in line
    assert not [one for one in before if "Traceback" in one or one.startswith(("\tat ", "Caused"))]
