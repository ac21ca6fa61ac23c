"""A Redis that is killed in the middle: its journal goes on, and a simple consumer's run passes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rqretry import Client, InvalidReceiptHandle
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.model.checker.check import check
from tests.model.checker.history import HistoryWriter
from tests.model.checker.recording import RecordedClient
from tests.model.checker.records import gather
from tests.model.checker.report import Verdict

MESSAGES = 40


@pytest.fixture
def client(checked_server: EmbeddedRedis) -> Iterator[Client]:
    with redis.Redis(unix_socket_path=str(checked_server.socket_path)) as raw:
        raw.flushall()
    with Client(checked_server.url, namespace="test") as client:
        yield client


def test_a_redis_that_is_killed_between_a_lease_and_its_ack_has_lost_nothing(
    checked_server: EmbeddedRedis, client: Client, tmp_path: Path
) -> None:
    recorded = RecordedClient(client, HistoryWriter(tmp_path))
    recorded.publish_many("t", range(MESSAGES))
    consumer = client.simple_consumer("t", group="g", create_group=True)
    first, *others = consumer.receive(max_messages=10, invisible_duration=600, wait=0)
    recorded.ack(consumer, first)

    checked_server.kill()
    checked_server.start()

    for message in others:
        recorded.ack(consumer, message)
    with pytest.raises(InvalidReceiptHandle):
        recorded.ack(consumer, first)
    while messages := consumer.receive(max_messages=10, wait=0):
        for message in messages:
            recorded.ack(consumer, message)

    directory = checked_server.socket_path.parent
    with redis.Redis(unix_socket_path=str(checked_server.socket_path)) as raw:
        report = check(gather(tmp_path, raw, "test", aof=directory))
    assert report.verdict is Verdict.PASS, report.table()
    assert report.counts["accepted"] == report.counts["committed"] == MESSAGES
