"""Calls that several callers share, without I/O: who goes together, and what each is answered."""

from collections import deque
from functools import partial
from typing import Any

import pytest

from rqretry.core.errors import AmbiguousResult, InvalidArgument, QueueFull, StoreUnavailable
from rqretry.producer.chunk import Caller, Room, next_call
from rqretry.producer.lane import Lane
from rqretry.producer.shared_call import send_shared
from rqretry.protocol.command import Command
from rqretry.protocol.publish import Prepared, Published
from tests.unit.producer.test_lane import ACCEPTED, Server, lost, message

FULL_BUT_FOR_TWO = Published("FULL", 0, "", stored=3, limit=5)


class Waiting(Caller):
    """A caller of these messages."""

    def __init__(self, *messages: Prepared) -> None:
        self._messages = messages

    @property
    def messages(self) -> tuple[Prepared, ...]:
        return self._messages


def shared(server: Server, *parts: list[Prepared]) -> Any:
    return server.perform(send_shared(partial(server.publishing.send, Lane("t", 0, 4)), parts))


def test_one_call_carries_what_all_publish_and_each_gets_its_own_answers() -> None:
    server = Server(lambda _: Published("OK", 1_000, "ACDA"))
    first, both, last = shared(
        server,
        [message("a")],
        [message("b", same="1"), message("c", same="2")],
        [message("d")],
    )
    assert (first, last) == (["a"], ["d"])
    assert isinstance(both[0], InvalidArgument)
    assert both[1].duplicate
    assert len(server.calls) == 1


def test_a_lost_answer_is_in_doubt_for_each_under_its_own_ids() -> None:
    first, second = shared(Server(lost), [message("a")], [message("b"), message("c")])
    assert isinstance(first, AmbiguousResult)
    assert (first.ids, second.ids) == (("a",), ("b", "c"))


def test_each_gets_an_error_of_its_own() -> None:
    failed = StoreUnavailable("nobody answers")
    failed.__cause__ = OSError("refused")

    def fail(_: Command[Any]) -> Any:
        raise failed

    first, second = shared(Server(fail), [message("a")], [message("b")])
    assert len({id(first), id(second), id(failed)}) == 3
    assert str(first) == str(second) == "nobody answers"
    assert first.__cause__ is failed.__cause__


def test_a_topic_that_is_nearly_full_refuses_those_that_came_last() -> None:
    answers = iter([FULL_BUT_FOR_TWO, ACCEPTED])
    server = Server(lambda _: next(answers))
    first, second, third = shared(server, [message("a")], [message("b")], [message("c")])
    assert (first, second) == (["a"], ["b"])
    assert isinstance(third, QueueFull)
    assert [len(call.ids) for call in server.calls] == [3, 2]


def test_a_topic_without_room_refuses_all_in_one_call() -> None:
    server = Server(lambda _: Published("FULL", 0, "", stored=5, limit=5))
    assert {type(answer) for answer in shared(server, [message("a")], [message("b")])} == {
        QueueFull
    }
    assert len(server.calls) == 1


def test_who_repeats_what_is_in_doubt_goes_alone() -> None:
    server, lane = Server(lost), Lane("t", 0, 4)
    with pytest.raises(AmbiguousResult):
        server.send(lane, message("b"))
    waiting = deque([Waiting(message(id_)) for id_ in "abcd"])
    taken = []
    while waiting:
        callers = next_call(waiting, Room(), server.publishing.in_doubt)
        taken.append("".join(m.id for caller in callers for m in caller.messages))
    assert taken == ["a", "b", "cd"]


def test_a_call_takes_no_more_than_it_may_and_one_caller_at_least() -> None:
    server = Server()
    waiting = deque([Waiting(*[message("x")] * many) for many in (469, 2, 900, 1)])
    sizes = []
    while waiting:
        callers = next_call(waiting, Room(), server.publishing.in_doubt)
        sizes.append([len(caller.messages) for caller in callers])
    assert sizes == [[469], [2], [900], [1]]
