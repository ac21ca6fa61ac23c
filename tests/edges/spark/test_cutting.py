"""Rows of a task cut into calls: by their order alone, however they arrive."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from rqretry.core.message_id import partition_of
from rqretry.protocol.publish import PlainMessages, Prepared
from rqretry.spark.chunking import Cutter

IDS = [f"m{n}" for n in range(1000)]


def plain(ids: list[str], *, named: bool) -> PlainMessages:
    return PlainMessages(ids, [id_.encode() for id_ in ids], [*ids] if named else None)


def calls(batches: Iterator[Sequence[Prepared]], partitions: int) -> dict[int, list[list[str]]]:
    """The ids of each call, for each partition."""
    cutter = Cutter(partitions, 100)
    found: dict[int, list[list[str]]] = {}
    for batch in batches:
        for partition, messages in cutter.add(batch):
            found.setdefault(partition, []).append([message.id for message in messages])
    for partition, messages in cutter.rest():
        found.setdefault(partition, []).append([message.id for message in messages])
    return found


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "ends", [[1000], [1, 999, 1000], [100, 200, 1000], [*range(0, 1001, 7), 1000]]
)
def test_the_calls_are_the_same_however_the_rows_arrive(
    partitions: int, named: bool, ends: list[int]
) -> None:
    cuts = [*pairwise([0, *ends])]
    many = calls((plain(IDS[a:b], named=named) for a, b in cuts), partitions)
    alone = calls(([*plain(IDS[a:b], named=named)] for a, b in cuts), partitions)

    assert many == alone == calls(iter([plain(IDS, named=named)]), partitions)
    for partition, found in many.items():
        mine = [id_ for id_ in IDS if partition_of(id_, partitions) == partition]
        assert found == [mine[at : at + 100] for at in range(0, len(mine), 100)]
    assert len(many) == partitions


def test_rows_that_were_looked_at_one_by_one_go_behind_others_in_one_call() -> None:
    batches: list[Sequence[Prepared]] = [
        plain(IDS[:150], named=False),
        [Prepared(IDS[150], b"x", "", 5)],
        plain(IDS[151:210], named=False),
    ]
    found = calls(iter(batches), 1)
    assert found == {0: [IDS[:100], IDS[100:200], IDS[200:210]]}
