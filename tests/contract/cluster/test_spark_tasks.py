"""Tasks of Spark publish to a cluster: one after the other to partitions on other primaries."""

from itertools import chain

import pyarrow as pa
import pytest

from rqretry.core.errors import RqretryError
from rqretry.protocol.keys import partition_keys
from rqretry.spark.options import read_options
from rqretry.spark.rows import Mapping
from rqretry.spark.sink import publish_batches
from rqretry.spark.task_context import Task
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.harness import NAMESPACE

PARTITIONS = 6
IDS = [f"m{n}" for n in range(5000)]


def refuse(place: object, error: RqretryError) -> None:
    """No row is bad."""
    raise AssertionError(f"row {place}: {error}")


@pytest.mark.parametrize("id_column", [None, "n"], ids=["lanes", "ids"])
async def test_a_task_publishes_each_row_once_to_all_partitions(
    lab: ClusterLab, id_column: str | None
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=PARTITIONS)
    places = [partition_keys(NAMESPACE, "t", number) for number in range(PARTITIONS)]
    assert len({lab.cluster.server_of(keys.meta) for keys in places}) > 1

    options = read_options({"url": lab.url, "namespace": NAMESPACE, "topic": "t"})
    mapping = Mapping(None, False, (("id", id_column),) if id_column else ())
    task = Task("job", 0, replayable=True)
    for sent in (5000, 0):
        rows = [pa.RecordBatch.from_pydict({"n": IDS})]
        totals = publish_batches(options, mapping, task, rows, refuse)
        assert (totals.sent, totals.known) == (sent, 5000 - sent)

    found = [lab.redis.lrange(keys.backlog, 0, -1) for keys in places]
    assert min(map(len, found)) > 500
    for waiting in found:  # each partition has its rows in their order
        numbers = [int(id_.decode().lstrip("m").rpartition(".")[2]) for id_ in waiting]
        assert numbers == sorted(numbers)
    assert len(set(chain.from_iterable(found))) == sum(map(len, found)) == 5000
