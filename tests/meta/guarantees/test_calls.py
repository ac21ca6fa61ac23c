"""Design rules about calls: sent once for each attempt, answered, lost, and repeated."""

import asyncio
import time
from typing import Any

import pytest
import redis

from rqretry import AmbiguousResult, App, AsyncClient, Client, Message
from rqretry.core.errors import RqretryError, ScriptError, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import async_connection, sync_connection
from rqretry.transport.node import Node
from rqretry.transport.replies import Call, TryAgain, meaning
from rqretry.transport.session import spell
from rqretry.transport.share import Share
from rqretry.worker.heartbeat import Heartbeat
from rqretry.worker.leases import Delivery, LeasedPlace
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted
from tests.support.faults.proxy import proxied
from tests.support.faults.rules import Fault, Rule, always

MEANING = {
    "OOM": "again", "MISCONF": "again", "READONLY": "again", "NOREPLICAS": "again",
    "LOADING": "again", "BUSY": "again", "MASTERDOWN": "again", "CLUSTERDOWN": "again",
    "TRYAGAIN": "again", "UNBLOCKED": "again", "EXECABORT": "again",
    "max number of clients reached": "again", "NOPERM": "never", "NOAUTH": "never",
    "WRONGPASS": "never", "MOVED": "never", "ASK": "never", "CROSSSLOT": "never",
    "WRONGTYPE": "script", "ERR something nobody has heard of": "script",
}  # fmt: skip


@pytest.mark.parametrize("reply", MEANING)
def test_every_error_of_a_server_has_one_meaning(reply: str) -> None:
    node = Node(RedisUrl.parse("redis://h:1"), ScriptLibrary())
    command: Command[Any] = Command("succeed", ("k",), (), list)
    error = meaning(node, command, redis.ResponseError(f"{reply} text"))
    found = (
        "again" if isinstance(error, TryAgain) else "script" if isinstance(error, ScriptError)
        else "never"
    )  # fmt: skip
    assert found == MEANING[reply]
    if isinstance(error, TryAgain):
        assert not error.sent, "by its answer the server did nothing"
    else:
        assert isinstance(error, RqretryError)


def test_the_library_of_redis_repeats_nothing_by_itself() -> None:
    url = RedisUrl.parse("redis://localhost:6379")
    for connection in (async_connection(url, 1.0), sync_connection(url, 1.0, 1.0)):
        assert connection.retry.get_retries() == 0
        assert connection.retry_on_error == []


async def test_an_attempt_sends_its_request_once_and_the_next_one_has_a_new_connection(
    lab: Lab,
) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.0
        before = lab.redis.info("stats")["total_connections_received"]
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(AmbiguousResult):
            await client.publish("t", "lost")
        sent = len(proxy.struck)
        proxy.rules = []
        await client.publish("t", "after")
        opened = lab.redis.info("stats")["total_connections_received"] - before
    # The first attempt, and the one that the time of patience always allows.
    assert sent == 2
    assert opened >= 2


async def test_a_lease_whose_reply_is_lost_costs_one_deadline_and_nothing_else(lab: Lab) -> None:
    seen = Seen()
    async with proxied(lab.server) as proxy:
        app = App(proxy.url, namespace=NAMESPACE)

        @app.consumer("t", group="g", visibility=1)
        async def handle(message: Message[Any]) -> None:
            seen.add(message)

        client = lab.client()
        async with lab.working(app):
            client.publish("t", "warm")
            await seen.count(1)
            proxy.rules = [Rule(Fault.DROP_REPLY, "lease")]
            sent = client.publish("t", "lost on its way")
            (_, message) = await seen.count(2)
            await counted(lab, "g", succeed=2, dead=0)
        await app.aclose()
    assert proxy.struck == [("lease", Fault.DROP_REPLY)]
    assert (message.id, message.attempt) == (sent, 2)


async def test_scripts_that_a_server_forgets_are_loaded_again(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 0)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    for number in range(3):
        lab.redis.script_flush()
        client.publish_many("t", [number, number])
        lab.redis.script_flush()
        for message in consumer.receive(10, wait=0):
            lab.redis.script_flush()
            consumer.ack(message)
    lab.redis.script_flush()
    async with AsyncClient(lab.url, namespace=NAMESPACE) as other:
        await asyncio.gather(*(other.publish("t", n) for n in range(20)))
    assert len(consumer.receive(32, wait=0)) == 20


def test_a_wake_up_that_is_lost_loses_no_message(lab_url: str) -> None:
    with Client(lab_url, namespace=NAMESPACE) as client:
        client.admin.create_topic("t")
        consumer = client.simple_consumer("t", group="g", create_group=True)
        sent = client.publish("t", 1)
        wake = parts_of(client).catalog.group_keys("t", 0, "g").wake
        assert (
            parts_of(client).store.run(Command("delete", (), (), int, arguments=("UNLINK", wake)))
            == 1
        )
        (message,) = consumer.receive(wait=0)
        assert message.id == sent
        consumer.ack(message)


class SlowStore:
    """A store whose replies take a while."""

    repeat_seconds = 0.0

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.replied_at = 0.0

    def run_each(self, commands: Any, seconds: float) -> list[Any]:
        """Answer, later than asked."""
        time.sleep(0.05)
        self.replied_at = time.monotonic()
        return [self.answer for _ in commands]


async def test_what_is_trusted_of_a_renewal_runs_from_its_sending() -> None:
    keys = partition_keys("n", "t", 0).group("g", 1)
    place = LeasedPlace("t", 0, keys, visibility_s=1.0)
    delivery = Delivery(place, "a", b"", (1, 1), time.monotonic() - 0.5, "")
    place.leases.add([delivery])
    delivery.task = asyncio.current_task()
    store: Any = SlowStore([b"OK"])
    before = time.monotonic()
    Heartbeat(store, [place], lambda lost: None, "w")._renew_all()
    assert before <= delivery.sent_at <= store.replied_at - 0.05


async def test_a_server_that_is_down_keeps_no_other_lease_from_being_renewed() -> None:
    lost: list[Delivery] = []
    places = [
        LeasedPlace("t", n, partition_keys("n", "t", n).group("g", 1), visibility_s=1.0)
        for n in range(3)
    ]
    old = time.monotonic() - 0.5
    deliveries = [Delivery(place, "a", b"", (1, 1), old, "") for place in places]
    for place, delivery in zip(places, deliveries, strict=True):
        place.leases.add([delivery])
        delivery.task = asyncio.current_task()
    answers = [[b"OK"], StoreUnavailable("down"), [b"STALE"]]
    store: Any = SlowStore(None)
    store.run_each = lambda commands, seconds: answers
    Heartbeat(store, places, lost.append, "w")._renew_all()
    await asyncio.sleep(0)
    assert [delivery.sent_at > old for delivery in deliveries] == [True, False, False]
    assert lost == deliveries[2:]


def test_what_confirms_a_publish_goes_right_behind_it_on_its_connection() -> None:
    share: Share[Call] = Share(Node(RedisUrl.parse("redis://h"), ScriptLibrary()), spell)
    wait = ("WAIT", 1, 1000)
    stored: Command[Any] = Command("publish", ("k",), (), list, confirm=wait)
    plain: Command[Any] = Command("ping", (), (), bytes, arguments=("PING",))
    share.calls += map(Call, [plain, stored, stored, plain])
    sent = [request[0] for request in share.requests()]
    assert sent == ["SCRIPT", "PING", "EVALSHA", "WAIT", "EVALSHA", "WAIT", "PING"]
