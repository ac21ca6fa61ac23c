"""Many callers at once: what they publish while a call is under way goes together in the next."""

import asyncio
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rqretry import AsyncClient, Client
from rqretry.core.parts import parts_of
from rqretry.producer import sender_thread
from tests.contract.integration.harness import NAMESPACE, PATIENCE_S, Lab

ALONE = 2
"""Threads that publish by themselves."""
BACKLOG, EVENTS = "rqretry:test:{t:0}:backlog", "rqretry:test:{t:0}:events"


def calls(lab: Lab) -> int:
    """How many calls have published; the history has an entry for each."""
    return int(lab.redis.xlen(EVENTS))


def stored(lab: Lab) -> list[str]:
    return [id_.decode() for id_ in lab.redis.lrange(BACKLOG, 0, -1)]


class Held:
    """Holds the calls of a sync client back, from its second publish on."""

    def __init__(self, client: Client) -> None:
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The names of the threads whose calls have begun."""
        self.go_on = threading.Event()
        self.holds: Any = bool
        """Which threads are held, by name."""
        client.publish("t", "so that the topic is there")
        self.client = client
        store: Any = parts_of(client).store
        self._perform, store.perform = store.perform, self.perform
        self._threads: list[threading.Thread] = []
        self.ids: dict[str, Any] = {}
        """What each thread was answered."""

    def perform(self, operation: Any) -> Any:
        """What the store does instead."""
        name = threading.current_thread().name
        self.begun.put(name)
        if self.holds(name):
            assert self.go_on.wait(PATIENCE_S)
        return self._perform(operation)

    def publish(self, name: str) -> None:
        """Publish in a thread of its own."""

        def work() -> None:
            self.ids[name] = self.client.publish("t", name)

        self._threads.append(threading.Thread(target=work, name=name))
        self._threads[-1].start()

    def under_way(self) -> list[str]:
        """Have as many calls under way as there can be, the sender's among them."""
        for number in range(ALONE + 1):
            self.publish(f"under way {number}")
        return sorted(self.begun.get(timeout=PATIENCE_S) for _ in range(ALONE + 1))

    @property
    def sender(self) -> Any:
        """What sends for the others."""
        (target,) = parts_of(self.client).publisher._targets.values()
        return target.sender

    def wait_for(self, number: int) -> None:
        """Wait until so many callers wait for the next call."""
        until = time.monotonic() + PATIENCE_S
        while self.sender._arrived.qsize() < number:
            assert time.monotonic() < until
            time.sleep(0)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@contextmanager
def held(lab: Lab) -> Iterator[Held]:
    """The calls of a new client are held, until the end at most."""
    holding = Held(lab.client())
    try:
        yield holding
    finally:
        holding.go_on.set()
        holding.join()


async def test_what_threads_publish_while_calls_are_under_way_goes_in_one(lab: Lab) -> None:
    with held(lab) as threads:
        assert threads.under_way()[0] == "rqretry-publish"
        for number in range(20):
            threads.publish(f"waits {number}")
        threads.wait_for(20)
    assert len(threads.ids) == ALONE + 1 + 20
    assert calls(lab) == 1 + ALONE + 1 + 1
    assert sorted(stored(lab)[1:]) == sorted(threads.ids.values())


async def test_one_thread_or_two_publish_by_themselves(lab: Lab) -> None:
    with held(lab) as threads:
        for number in range(ALONE):
            threads.publish(f"alone {number}")
        begun = {threads.begun.get(timeout=PATIENCE_S) for _ in range(ALONE)}
    assert begun == {"alone 0", "alone 1"}
    assert threads.sender._thread is None


async def test_who_waits_too_long_publishes_by_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_thread, "PATIENCE_S", 0.01)
    with held(lab) as threads:
        threads.under_way()
        threads.holds = lambda name: name != "impatient"
        threads.publish("impatient")
        assert threads.begun.get(timeout=PATIENCE_S) == "impatient"
    assert len(set(stored(lab))) == len(stored(lab)) == 1 + ALONE + 1 + 1


async def test_where_no_thread_can_be_started_each_publishes_by_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError("can't start new thread")

    with held(lab) as threads:
        for number in range(ALONE):
            threads.publish(f"alone {number}")
            threads.begun.get(timeout=PATIENCE_S)
        threads.holds = lambda name: name.startswith("alone")
        monkeypatch.setattr(threading, "Thread", refuse)
        assert threads.client.publish("t", "by itself") in stored(lab)


async def test_what_is_published_inside_of_a_shared_call_waits_for_no_other(lab: Lab) -> None:
    with held(lab) as threads:
        client, inside = threads.client, list[str]()

        def holds(name: str) -> bool:
            if name == "rqretry-publish" and not inside:
                inside.append(name)
                inside.append(client.publish("t", "as a hook of the call does"))
            return name.startswith("under way")

        threads.holds = holds
        threads.under_way()
        threads.wait_for(0)
    assert inside[1] in stored(lab)


def test_an_interrupted_thread_takes_back_what_was_not_sent_and_stops_nobody(
    lab_url: str,
) -> None:
    class Interrupted(BaseException):
        """What the signal raises."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    with Client(lab_url, namespace=NAMESPACE) as client:
        threads = Held(client)
        threads.under_way()
        before = signal.signal(signal.SIGUSR1, interrupt)

        def disturb() -> None:
            threads.wait_for(1)
            threads.publish("goes on")
            threads.wait_for(2)
            os.kill(os.getpid(), signal.SIGUSR1)

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        try:
            with pytest.raises(Interrupted):
                client.publish("t", "taken back")
        finally:
            signal.signal(signal.SIGUSR1, before)
            disturbing.join(PATIENCE_S)
            threads.go_on.set()
            threads.join()
        assert len(threads.ids) == ALONE + 1 + 1
        assert client.admin.stats("t").backlog == 1 + ALONE + 1 + 1


async def test_a_forked_child_has_a_sender_of_its_own(lab: Lab) -> None:
    def both() -> int:
        with held(lab) as threads:
            threads.under_way()
            client = threads.client
            child = os.fork()
            if child == 0:
                try:
                    threads.go_on.set()
                    _publish_in_threads(client, 6, 5)
                    os._exit(0)
                except BaseException:  # noqa: BLE001 - a forked child must not return into pytest
                    os._exit(1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert await asyncio.to_thread(both) == 0
    assert len(set(stored(lab))) == 1 + ALONE + 1 + 6 * 5


async def test_each_thread_has_its_messages_in_the_order_in_which_it_published_them(
    lab: Lab,
) -> None:
    client = lab.client()
    by_thread = _publish_in_threads(client, 12, 20)
    at = {id_: number for number, id_ in enumerate(stored(lab))}
    assert len(at) == 12 * 20
    for ids in by_thread:
        places = [at[id_] for id_ in ids]
        assert places == sorted(places)


def _publish_in_threads(client: Client, number: int, each: int) -> list[list[str]]:
    made: list[list[str]] = [[] for _ in range(number)]
    together = threading.Barrier(number)

    def work(mine: list[str]) -> None:
        together.wait(PATIENCE_S)
        mine += [str(client.publish("t", at)) for at in range(each)]

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert all(len(mine) == each for mine in made)
    return made


async def test_coroutines_that_publish_again_and_again_share_each_call(lab: Lab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.publish("t", "so that the topic is there")

        async def work(caller: int) -> None:
            for number in range(5):
                await client.publish("t", [caller, number])

        await asyncio.gather(*(work(caller) for caller in range(64)))
    assert len(stored(lab)) == 1 + 64 * 5
    assert calls(lab) == 1 + 1 + 5  # of one caller, then of all at once


async def test_what_a_cancelled_coroutine_had_waiting_is_not_sent(lab: Lab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.publish("t", "so that the topic is there")
        first, *waiting = [asyncio.ensure_future(client.publish("t", n)) for n in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait([first, *waiting])
    assert len(stored(lab)) == 1 + 3


async def test_a_client_goes_on_when_every_task_of_its_loop_was_cancelled(lab: Lab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.publish("t", "so that the topic is there")
        callers = [asyncio.ensure_future(client.publish("t", n)) for n in range(4)]
        (lane,) = parts_of(client).publisher._lanes["t"].all()
        while lane._task is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait(callers)
        async with asyncio.timeout(PATIENCE_S):
            await client.publish("t", "goes on")
    assert len(set(stored(lab))) == len(stored(lab))
