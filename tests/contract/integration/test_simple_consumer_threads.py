"""Threads that share one simple consumer: another one runs between any two lines of the first."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from rqretry import Message
from rqretry.consumer.simple_settling import SimpleSettling
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import NAMESPACE, Lab

MESSAGES = 12
BAD = f"rqretry:{NAMESPACE}:{{bad:0}}:group:g:inflight"


def is_of_a_consumer(frame: FrameType) -> bool:
    """Whether it runs what a simple consumer does, or looks for it."""
    here = str(frame.f_globals.get("__name__")).startswith("rqretry.consumer.")
    return here or isinstance(frame.f_locals.get("self"), SimpleSettling)


@contextmanager
def at_each_line(run: Callable[[], None]) -> Iterator[None]:
    """Another thread runs this before each line of what this one does in a simple consumer."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            run()
        return trace if is_of_a_consumer(frame) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("topics", [["t"], ["t", "bad"]], ids=["one", "one that is refused"])
def test_threads_receive_through_one_consumer(lab: Lab, topics: list[str]) -> None:
    """New messages, beside a partition that is refused, and is not, again and again."""
    client = lab.client()
    for topic in topics:
        client.admin.create_topic(topic)
    consumer = client.simple_consumer(topics, group="g", create_group=True)
    operations: Any = parts_of(consumer).operations
    ids = client.publish_many("t", range(MESSAGES))
    got: list[Message[Any]] = []
    lines = 0

    def another() -> None:
        nonlocal lines
        lines += 1
        if lines % 2:
            lab.redis.set(BAD, "damaged")
        else:
            lab.redis.delete(BAD)
            operations._refused.clear()  # nothing of it is put off any more
        got.extend(other.submit(consumer.receive, 1, wait=0).result())

    with ThreadPoolExecutor(1) as other:
        while len(got) < MESSAGES or lines < 500:
            with at_each_line(another):
                received = consumer.receive(1, wait=0)
            got += received
    assert sorted(message.id for message in got) == sorted(ids)
    consumer.ack(got)
    lab.redis.delete(BAD)
    assert lab.stats("g", "t").inflight == 0
