"""Options of reads, as the data source checks them on the driver: one sentence, and no password."""

import pytest

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
    ],
)
def test_a_wrong_option_of_a_stream_is_one_sentence(
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
