"""Publishing against a real server: ids, delays, batches, lost replies, threads and forks."""

import asyncio
import gc
import os
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from rqretry import (
    AmbiguousResult,
    AsyncClient,
    Client,
    CodecError,
    InvalidArgument,
    MessageId,
    MessageTooLarge,
    OutgoingMessage,
    PublishError,
    QueueFull,
    StoreUnavailable,
    TopicNotFound,
)
from rqretry.core.history_notes import NOTHING, Noted, decode_noted
from rqretry.core.parts import parts_of
from rqretry.protocol.inspect import history
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted
from tests.support.faults.proxy import proxied
from tests.support.faults.rules import Fault, Rule, always

BODIES = "rqretry:test:{t:0}:bodies"


def published(lab: Lab) -> int:
    """How many messages topic t has stored; nobody consumes them."""
    return int(lab.redis.hlen(BODIES))


async def test_an_id_of_the_caller_is_stored_once(lab: Lab) -> None:
    client = lab.client()

    first = client.publish("t", {"n": 1}, id="order-1", tag="a")
    again = client.publish("t", {"n": 1}, id="order-1", tag="a")

    assert (first, first.duplicate) == ("order-1", False)
    assert (again, again.duplicate) == ("order-1", True)
    assert isinstance(first, MessageId)
    assert published(lab) == 1


@pytest.mark.parametrize(
    "change", [{"body": {"n": 2}}, {"tag": "b"}, {"keys": ["k"]}, {"headers": {"h": "1"}}]
)
async def test_the_same_id_with_another_content_is_refused(
    lab: Lab, change: dict[str, Any]
) -> None:
    client = lab.client()
    client.publish("t", {"n": 1}, id="order-1", tag="a")

    with pytest.raises(InvalidArgument, match="order-1"):
        client.publish("t", **{"body": {"n": 1}, "tag": "a", "id": "order-1", **change})

    assert published(lab) == 1


async def test_a_given_id_is_remembered_after_its_message_is_done(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g")(seen.add)
    async with lab.working(app):
        await app.publish("t", 1, id="order-1")
        await counted(lab, "g", succeed=1)
        again = await app.publish("t", 1, id="order-1")

    assert again.duplicate
    assert len(seen.messages) == 1


async def test_a_duplicate_inside_one_batch_is_seen_too(lab: Lab) -> None:
    client = lab.client()
    one = OutgoingMessage(body=1, id="order-1")

    ids = client.publish_many("t", [one, one, 2])

    assert ids[:2] == ["order-1", "order-1"]
    assert published(lab) == 2


@pytest.mark.parametrize("options", [{"delay": "150ms"}, {"delay_level": 1}])
async def test_a_delayed_message_comes_when_it_is_due_and_not_before(
    lab: Lab, options: dict[str, Any]
) -> None:
    app, seen = lab.app(delay_levels="150ms 10s"), Seen()
    app.consumer("t", group="g")(seen.add)
    app.consumer("t", group="h")(Seen().add)
    async with lab.working(app):
        await asyncio.sleep(0)
        start = time.monotonic()
        sent = await app.publish("t", 1, **options)
        states = (await app.admin.message(sent)).states
        in_time = time.monotonic() - start < 0.145  # a machine with other work may be late
        await seen.count(1)
        await counted(lab, "g", succeed=1)
        await counted(lab, "h", succeed=1)

    assert {state.state for state in states} == {"scheduled"} or not in_time
    assert seen.at[0] - start >= 0.145


async def test_many_messages_are_sent_in_bounded_calls_and_answered_in_order(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=2)
    ids = client.publish_many("t", range(1200))

    keys = [parts_of(client).catalog.partition("t", number) for number in range(2)]
    pages = [parts_of(client).store.run(history(of, start="-")) for of in keys]
    calls = [fields["i"].decode().split() for page in pages for _, fields in page]
    assert sorted(id_ for call in calls for id_ in call) == sorted(set(ids))
    assert len(ids) == 1200
    assert max(map(len, calls)) <= 500
    by_id = {str(sent): number for number, sent in enumerate(ids)}
    with client.simple_consumer("t", group="g", create_group=True) as consumer:
        got = [message for _ in range(40) for message in consumer.receive(32, wait=0)]
    assert len(got) == 1200
    assert all(by_id[message.id] == message.body for message in got)


async def test_many_large_messages_are_split_by_bytes(lab: Lab) -> None:
    client = lab.client()
    ids = client.publish_many("t", [b"x" * 400_000] * 5)

    entries = [fields[b"i"].split() for _, fields in lab.redis.xrange("rqretry:test:{t:0}:events")]
    assert [len(batch) for batch in entries] == [2, 2, 1]
    assert [id_.decode() for batch in entries for id_ in batch] == ids


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (object(), CodecError),
        (float("nan"), CodecError),
        (b"x" * (4 * 1024 * 1024 + 1), MessageTooLarge),
        (OutgoingMessage(body=1, id="not an id"), InvalidArgument),
        (OutgoingMessage(body=1, tag="a|b"), InvalidArgument),
        (OutgoingMessage(body=1, delay=-1), InvalidArgument),
    ],
    ids=["object", "nan", "too large", "id", "tag", "delay"],
)
async def test_one_bad_message_of_1200_means_that_nothing_is_written(
    lab: Lab, bad: Any, error: type[Exception]
) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    before = sorted(lab.redis.keys("*"))

    with pytest.raises(error):
        client.publish_many("t", [*range(1199), bad])

    assert sorted(lab.redis.keys("*")) == before


@pytest.mark.parametrize("one", ["abc", b"abc", {"a": 1}, None, 7], ids=repr)
async def test_one_body_is_not_taken_for_many(lab: Lab, one: Any) -> None:
    app, client = lab.app(), lab.client()
    client.admin.create_topic("t")
    before = sorted(lab.redis.keys("*"))

    for publish_many in (partial(app.publish_many, "t"), app.topic("t").publish_many):
        with pytest.raises(InvalidArgument, match="must be a list or an iterable of bodies"):
            await publish_many(one)
        with pytest.raises(InvalidArgument):
            await publish_many(one, durability="memory")
    with pytest.raises(InvalidArgument), client.transaction("t") as tx:
        tx.publish_many(one)

    assert sorted(lab.redis.keys("*")) == before


async def test_a_lost_reply_is_repeated_and_the_message_stored_once(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        proxy.rules = [Rule(Fault.DROP_REPLY, "publish")]
        sent = await client.publish("t", 1)

    assert sent
    assert proxy.struck == [("publish", Fault.DROP_REPLY)]
    assert published(lab) == 2


async def test_an_ambiguous_publish_can_be_repeated_by_its_id_exactly(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(AmbiguousResult) as caught:
            await client.publish("t", "once")
        error = caught.value
        proxy.rules = []
        others = [await client.publish("t", number) for number in range(3)]
        again = await client.publish("t", "once", id=error.id)

    assert again == error.id
    assert again.duplicate
    assert published(lab) == 5
    assert len(set(others)) == 3
    ids = lab.redis.lrange("rqretry:test:{t:0}:backlog", 0, -1)
    assert Counter(ids)[error.id.encode()] == 1


async def test_an_ambiguous_publish_with_options_is_a_publish(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm", delay=60)
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(AmbiguousResult, match=r"^publish of message .* through this client"):
            await client.publish("t", "once", delay=60)


async def test_an_ambiguous_id_repeated_with_another_body_is_refused(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(AmbiguousResult) as caught:
            await client.publish("t", "once")
        proxy.rules = []
        with pytest.raises(InvalidArgument, match="other content"):
            await client.publish("t", "another", id=caught.value.id)


async def test_an_ambiguous_publish_that_never_arrived_is_stored_by_the_repeat(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REQUEST, "publish")
        with pytest.raises(AmbiguousResult) as caught:
            await client.publish("t", "once")
        proxy.rules = []
        again = await client.publish("t", "once", id=caught.value.id)

    assert not again.duplicate
    assert published(lab) == 2


async def test_concurrent_publishers_each_get_their_own_ambiguous_ids(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        results = await asyncio.gather(
            *(client.publish("t", number) for number in range(20)), return_exceptions=True
        )
        proxy.rules = []
        errors = [result for result in results if isinstance(result, AmbiguousResult)]
        assert len(errors) == len(results) == 20
        assert all(len(error.ids) == 1 for error in errors)
        again = await asyncio.gather(
            *(client.publish("t", number, id=error.id) for number, error in enumerate(errors))
        )

    assert [str(id_) for id_ in again] == [error.id for error in errors]
    assert published(lab) == 21
    ids = lab.redis.lrange("rqretry:test:{t:0}:backlog", 0, -1)
    assert len(ids) == len(set(ids)) == 21


async def test_publish_error_says_which_ids_are_where(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", "other body", id="taken")
    messages = [OutgoingMessage(body=1, id="free"), OutgoingMessage(body=2, id="taken"), 3]

    with pytest.raises(PublishError) as caught:
        client.publish_many("t", messages)

    error = caught.value
    assert (error.failed, error.ambiguous) == (("taken",), ())
    assert error.done[0] == "free"
    assert len(error.done) == 2
    assert "taken" in str(error)
    assert published(lab) == 3


async def test_publish_error_lists_ambiguous_ids_and_they_can_be_repeated(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(PublishError) as caught:
            await client.publish_many("t", range(700))
        proxy.rules = []
        error = caught.value
        assert (len(error.done), len(error.failed), len(error.ambiguous)) == (0, 0, 700)
        await client.publish_many(
            "t",
            [OutgoingMessage(body=n, id=id_) for n, id_ in enumerate(error.ambiguous)],
        )

    assert published(lab) == 701
    ids = lab.redis.lrange("rqretry:test:{t:0}:backlog", 0, -1)
    assert len(ids) == len(set(ids)) == 701


async def test_an_unreachable_server_is_a_definite_error_with_its_place(lab: Lab) -> None:
    client = Client("redis://:secret@127.0.0.1:1/0")
    parts_of(client).store.repeat_seconds = 0.1

    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1") as caught:
        client.publish("t", 1)

    assert "secret" not in str(caught.value) + repr(client)


async def test_eight_threads_share_a_client(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=2)
    ids: list[MessageId] = []

    def work(number: int) -> None:
        ids.extend([client.publish("t", [number, k]) for k in range(100)])
        ids.extend(client.publish_many("t", ([number, k] for k in range(100, 200))))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(ids)) == 1600
    stats = client.admin.stats("t")
    assert stats.backlog == 1600


async def test_a_forked_child_publishes_beside_its_parent(lab: Lab) -> None:
    def both() -> int:
        client = lab.client()
        client.publish("t", "parent before")
        child = os.fork()
        if child == 0:
            try:
                for number in range(50):
                    client.publish("t", ["child", number])
                os._exit(0)
            except BaseException:  # noqa: BLE001 - a forked child must not return into pytest
                os._exit(1)
        for number in range(50):
            client.publish("t", ["parent", number])
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert await asyncio.to_thread(both) == 0
    assert published(lab) == 101


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the first loop's socket
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_asyncio_client_lives_through_two_event_loops(lab_url: str) -> None:
    client = AsyncClient(lab_url, namespace=NAMESPACE)

    async def leave_some_behind() -> None:
        await client.publish("t", "first")
        tasks = [asyncio.ensure_future(client.publish("t", number)) for number in range(20)]
        (lane,) = parts_of(client).publisher._lanes["t"].all()
        while lane._task is None and not all(task.done() for task in tasks):  # noqa: ASYNC110
            await asyncio.sleep(0)  # the second batch is on its way when the loop ends
        assert lane._task is not None

    async def go_on() -> list[MessageId]:
        async with asyncio.timeout(5):
            ids = [await client.publish("t", "second")]
            ids += await client.publish_many("t", range(10))
        await client.aclose()
        return ids

    asyncio.run(leave_some_behind())
    assert len(set(asyncio.run(go_on()))) == 11
    gc.collect()


async def test_a_cancelled_publish_disturbs_nobody(lab: Lab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        for turn in range(30):
            tasks = [asyncio.ensure_future(client.publish("t", [turn, n])) for n in range(6)]
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[3].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            kept = [r for n, r in enumerate(results) if n not in (0, 3)]
            assert all(isinstance(r, MessageId) for r in kept), results
        async with asyncio.timeout(5):
            await client.publish("t", "last")

    ids = lab.redis.lrange("rqretry:test:{t:0}:backlog", 0, -1)
    assert len(ids) == len(set(ids))
    assert 122 <= len(ids) <= 182


async def test_a_full_server_refuses_publishes_and_drains(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    app.consumer("t", group="g")(seen.add)
    async with lab.working(app):
        lab.redis.config_set("maxmemory", 1)
        try:
            with pytest.raises(QueueFull):
                await app.publish("t", 1)
        finally:
            lab.redis.config_set("maxmemory", 0)
        await app.publish("t", 2)
        await counted(lab, "g", succeed=1)
    assert seen.bodies == [2]


async def test_an_ambiguous_id_is_stored_once_when_another_client_publishes_it_again(
    lab: Lab,
) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(AmbiguousResult) as caught:
            await client.publish("t", "once")
        proxy.rules = []

    async with AsyncClient(lab.server.url, namespace=NAMESPACE) as another:
        again = await another.publish("t", "once", id=caught.value.id)

    assert again.duplicate
    ids = lab.redis.lrange("rqretry:test:{t:0}:backlog", 0, -1)
    assert Counter(ids)[again.encode()] == 1


async def test_the_history_notes_tags_keys_and_traces_of_what_was_accepted(lab: Lab) -> None:
    client = lab.client()
    trace = "0af7651916cd43dd8448eb211c80319c"
    parent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    client.publish("t", 0, id="known", tag="a")

    client.publish_many(
        "t",
        [
            OutgoingMessage(body=0, id="known", tag="a"),
            OutgoingMessage(body=1, id="new", tag="b", keys=["k1", "k2"], headers=parent),
            OutgoingMessage(body=2, id="plain"),
        ],
    )
    client.publish("t", {"n": 1})

    entries = lab.redis.xrange("rqretry:test:{t:0}:events")
    read = [(f[b"i"].decode().split(), f[b"b"]) for _, f in entries]
    assert read[0][0] == ["known"]
    assert decode_noted(read[0][1], read[0][0]) == [Noted("a")]
    assert read[1][0] == ["new", "plain"]
    assert decode_noted(read[1][1], read[1][0]) == [Noted("b", ("k1", "k2"), None, trace), NOTHING]
    assert read[2][1] == b""


@pytest.mark.parametrize("topic", [["t"], {"t": 1}, 5, None, b"t", "", "a b"])
async def test_what_is_no_topic_is_refused_although_another_one_is_known(
    lab: Lab, topic: Any
) -> None:
    app = lab.app()
    await app.publish("t", 1)
    app.publish_sync("t", 2)
    for publish in (app.client.publish, app.publish):
        with pytest.raises(InvalidArgument, match=r"^topic "):
            answer = publish(topic, 3)
            await answer if asyncio.iscoroutine(answer) else answer
    assert app.client.admin.stats("t").topics[0].stored == 2


async def test_a_misspelt_topic_is_not_created_where_that_is_forbidden(lab: Lab) -> None:
    app, client = lab.app(create_topics=False), lab.client(create_topics=False)
    declared = app.topic("declared", partitions=3)

    @app.task
    def job() -> None:
        """Do nothing."""

    for publish in (app.publish_sync, client.publish, client.publish_many):
        with pytest.raises(TopicNotFound, match=r"rqretry topic create misspelt"):
            publish("misspelt", [1])
    with pytest.raises(TopicNotFound, match=r"create_topics=False"):
        await app.publish("misspelt", 1)
    with pytest.raises(TopicNotFound), client.transaction("misspelt") as tx:
        tx.publish(1)
    assert client.admin.topics() == []
    await declared.publish(1)
    await job.send()
    client.publish("declared", 2)
    made = {topic.name: topic.partitions for topic in client.admin.topics()}
    assert made == {"declared": 3, "job": 1}


async def test_a_topic_that_is_gone_is_not_made_again_where_that_is_forbidden(lab: Lab) -> None:
    client = lab.client(create_topics=False)
    client.admin.create_topic("t")
    client.publish("t", 1)
    lab.client().admin.delete_topic("t")
    with pytest.raises(TopicNotFound, match=r"create_topics=False"):
        client.publish("t", 2)
    assert client.admin.topics() == []


@pytest.mark.parametrize("patience", ["100ms", 0.1])
async def test_how_long_a_call_is_repeated_is_settable(lab: Lab, patience: Any) -> None:
    app = lab.app(timeout=patience)
    clients: list[Any] = [app.client, app.async_client, lab.client(timeout=patience)]
    for client in clients:
        store = parts_of(client).store
        assert (store.repeat_seconds, store.reply_seconds) == (0.1, 0.1)
    away = Client("redis://127.0.0.1:1", timeout=patience)
    with pytest.raises(StoreUnavailable):
        away.publish("t", 1)
    assert parts_of(lab.app().client).store.repeat_seconds == 15
    with pytest.raises(InvalidArgument, match=r"^timeout"):
        lab.app(timeout=0)


async def test_a_client_without_asyncio_warns_once_where_a_loop_runs(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.client()
    await asyncio.to_thread(client.publish, "t", 1)
    assert not caplog.records
    client.publish("t", 2)
    client.publish("t", 3)
    (record,) = caplog.records
    assert (record.levelname, "stands still" in record.getMessage()) == ("WARNING", True)
