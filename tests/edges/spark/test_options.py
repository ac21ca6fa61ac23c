"""Options of reads, as the data source checks them on the driver: one sentence, and no password."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rqretry import Client, RqretryError
from rqretry.spark.source import RqretryDataSource
from rqretry.testing.embedded_redis import EmbeddedRedis

NAMESPACE = "options"
UNREACHABLE = {"url": "redis://:s3cret@127.0.0.1:1"}


@pytest.fixture(scope="module")
def given(redis_server: EmbeddedRedis) -> dict[str, str]:
    """Options that are right, of a topic with one partition."""
    with Client(redis_server.url, namespace=NAMESPACE) as client:
        client.publish("t", 1)
    return {"url": redis_server.url, "namespace": NAMESPACE, "topic": "t"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an error is raised, a worker tells Spark by a variable how to send it home."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"topc": "t"}, "there is no option 'topc'; did you mean topic"),
        ({"kind": "letters"}, "option kind 'letters' must be one of history, dead_letters"),
        ({"fetchSize": "many"}, "option fetchSize 'many' must be a whole number from 1 to"),
        ({"pushFilters": "1"}, "option pushFilters '1' must be true or false"),
        (UNREACHABLE, "Redis at 127.0.0.1:1 is unreachable"),
        ({"url": "http://:s3cret@h"}, "the Redis URL must begin with"),
        ({"topic": "missing"}, "there is no topic 'missing' in namespace"),
        ({"topic": ""}, "option topic is missing"),
        ({"startingOffsets": "soon"}, "option startingOffsets 'soon' must be"),
        ({"startingOffsets": '{"t":{"7":"earliest"}}'}, "names partition 7 of topic 't'"),
        ({"startingOffsets": '{"t":{"0":"x"}}'}, "offset 'x' must be like"),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for streaming reads"),
        ({"kind": "dead_letters", "group": "none"}, "there is no consumer group 'none'"),
    ],
)
def test_a_wrong_option_of_a_batch_read_is_one_sentence(
    given: dict[str, str], options: dict[str, str], shown: str
) -> None:
    with pytest.raises(RqretryError) as caught:
        source = RqretryDataSource(given | options)
        source.reader(source.schema()).partitions()
    check(caught.value, shown)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"kind": "messages"}, "kind 'messages' cannot be read as a stream"),
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch reads"),
        ({"maxOffsetsPerTrigger": "-5"}, "option maxOffsetsPerTrigger '-5' must be a whole number"),
        ({"topic": "missing"}, "there is no topic 'missing'"),
        (UNREACHABLE, "Redis at 127.0.0.1:1 is unreachable"),
        ({"subscribe": "t"}, "options topic and subscribe name the topics: give one of them"),
        ({"assign": "{}"}, "there is no option 'assign': name partitions in startingOffsets"),
        ({"columns": "event"}, "there is no option 'columns': give the read a schema"),
        ({"topic": "", "subscribePattern": "("}, "option subscribePattern '(' is not a regular"),
        ({"maxTriggerDelay": "1m"}, "option maxTriggerDelay is how long minOffsetsPerTrigger may"),
        ({"endingTimestamp": "1"}, "option endingTimestamp is for batch reads: remove it"),
        (
            {"includeHeaders": "True"},
            "option includeHeaders is for kinds messages and dead_letters",
        ),
    ],
)
def test_a_wrong_option_of_a_stream_is_one_sentence_and_so_are_those_of_other_sources(
    given: dict[str, str], options: dict[str, str], shown: str
) -> None:
    with pytest.raises(RqretryError) as caught:
        source = RqretryDataSource(given | options)
        source.streamReader(source.schema()).initialOffset()
    check(caught.value, shown)


def check(error: RqretryError, shown: str) -> None:
    text = str(error)
    assert shown in text
    assert "\n" not in text
    assert "s3cret" not in text


def test_topics_are_chosen_by_a_pattern_and_a_time(given: dict[str, str]) -> None:
    with Client(given["url"], namespace=NAMESPACE) as client:
        for topic in ("us.orders", "eu.orders", "orders"):
            client.publish(topic, 1)
    where = {name: given[name] for name in ("url", "namespace")}

    def planned(**options: str) -> list[str]:
        source = RqretryDataSource({**where, "SUBSCRIBEPATTERN": r"\w+\.orders", **options})
        parts = source.reader(source.schema()).partitions()
        return sorted(span.topic for part in parts for span in part.spans)  # type: ignore[attr-defined]

    assert planned() == planned(startingTimestamp="1") == ["eu.orders", "us.orders"]
    assert planned(startingTimestamp=str(10**15)) == planned(endingTimestamp="1") == []


def test_a_batch_waits_for_the_fewest_events_or_its_time(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("rqretry.spark.stream_reader.time.monotonic", lambda: clock[0])
    options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "30s"}
    source = RqretryDataSource(given | options)
    reader: Any = source.streamReader(source.schema())
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with Client(given["url"], namespace=NAMESPACE) as client:
        client.publish_many("t", [1, 2])
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        client.publish("t", 3)
        more = reader.latestOffset(start, ReadAllAvailable())
        assert more != start
        client.publish("t", 4)
        assert reader.latestOffset(more, ReadAllAvailable()) == more
        clock[0] += 31
        assert reader.latestOffset(more, ReadAllAvailable()) != more
