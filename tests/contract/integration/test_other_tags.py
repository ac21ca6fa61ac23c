"""Instances of a group that name different tags: the last one wins, and everybody hears of it."""

import time

import pytest

from rqretry.worker import partition_watch
from tests.contract.integration.harness import Lab, Seen, counted, until

PARTITIONS = pytest.mark.parametrize("partitions", [1, 4])


@PARTITIONS
async def test_instances_that_disagree_warn_each_other_and_the_operator(
    lab: Lab, partitions: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_watch, "LOOK_EVERY_S", 0.02)
    first, second, seen = lab.app(), lab.app(), Seen()
    first.consumer("t", group="g", tags="paid")(seen.add)
    second.consumer("t", group="g", tags="open")(seen.add)
    await first.admin.create_topic("t", partitions=partitions)

    async with lab.working(first):
        assert lab.stats("g").other_tags == ()
        assert (await first.admin.group("g")).tags_changed_at_ms is None
        before = time.time() * 1000
        async with lab.working(second) as worker:
            expected = "group g took paid of topic t and takes open from now on, in every instance"
            assert expected in caplog.text
            heard = "group g takes open of topic t, as another instance of it named, and not paid"
            await until(lambda: heard in caplog.text)
            await until(lambda: lab.stats("g").workers == 2)
            stats = lab.stats("g")
            assert (stats.tags, stats.other_tags, stats.workers) == ("open", ("paid",), 2)
            group = await first.admin.group("g")
            assert (group.tags, group.tags_changed_by) == ({"t": "open"}, worker.name)
            assert group.tags_changed_at_ms is not None
            assert before - 1000 < group.tags_changed_at_ms < before + 60_000
            assert caplog.text.count(heard) == 1


@PARTITIONS
async def test_what_was_published_while_nobody_lived_stays_as_it_was_chosen(
    lab: Lab, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=partitions)
    client.simple_consumer("t", group="h", create_group=True)
    first, second, seen, unused = lab.app(), lab.app(), Seen(), Seen()
    first.consumer("t", group="g", tags="paid")(unused.add)
    second.consumer("t", group="g", tags="open")(seen.add)
    async with lab.working(first):
        pass
    for tag in ("paid", "open"):
        client.publish("t", f"old {tag}", tag=tag)
    async with lab.working(second):
        for tag in ("paid", "open"):
            client.publish("t", f"new {tag}", tag=tag)
        await seen.count(2)
        await counted(lab, "g", succeed=2)
    assert sorted(seen.bodies) == ["new open", "old paid"]
    assert "what was published before stays as it was chosen" in caplog.text


async def test_a_start_that_names_the_same_tags_or_none_warns_nobody(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    client.simple_consumer("t", group="g", create_group=True, tags="b || a")
    client.simple_consumer("t", group="g", tags="a||b")
    client.simple_consumer("t", group="g")
    assert "took" not in caplog.text
    assert client.admin.group("g").tags_changed_at_ms is None
