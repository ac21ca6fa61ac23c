"""A read as a table, with the options and the lag that users of Kafka's source know."""

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rqretry.spark import behind_latest
from tests.edges.spark.pipeline import Pipeline, finished

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.mark.campaign
def test_a_table_is_read_with_its_columns_and_filters_and_as_a_stream(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for number in range(5):
        pipeline.client.publish("orders.eu", number)
    pipeline.client.publish("other", 1)
    spark, name = pipeline.spark, f"t_{pipeline.namespace}"
    options = pipeline.options("", subscribePattern="orders.*", pushFilters="TRUE")
    del options["topic"]
    spark.sql(f"CREATE TABLE {name} (event STRING, topic STRING, entry BIGINT) USING rqretry")
    try:
        with pytest.raises(PySparkException, match="FROM t WITH"):
            spark.table(name).collect()
        given = ", ".join(f"{key} = '{value}'" for key, value in options.items())
        rows = spark.sql(f"SELECT * FROM {name} WITH ({given}) WHERE event = 'publish'")
        assert [(row.topic, row.entry) for row in rows.collect()] == [
            ("orders.eu", number) for number in range(1, 6)
        ]
        plan = rows._jdf.queryExecution().toString()
        physical = plan.partition("== Physical Plan ==")[2]
        assert re.search(r"Filter .*event#\d+ = publish", physical)  # once more by Spark
        assert "rqretry[event" in physical
        assert "(Python)" in physical  # for all sources in Python, whatever they were offered
        assert "PushedFilters" not in physical
        assert "message_id" not in plan
        stream = spark.readStream.options(
            **options, startingOffsets="earliest", maxOffsetsPerTrigger="2"
        ).table(name)
        writer = stream.writeStream.format("noop").trigger(availableNow=True)
        query = finished(writer.option("checkpointLocation", str(tmp_path)).start())
        behind = [behind_latest(progress) for progress in query.recentProgress]
        assert behind == [{"orders.eu/0": number} for number in (3, 1, 0)]
    finally:
        spark.sql(f"DROP TABLE {name}")
