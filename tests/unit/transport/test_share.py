"""A part of a batch, and what a call comes to that has requests ahead of it in a transaction."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from redis.exceptions import AskError, ExecAbortError, NoPermissionError, OutOfMemoryError

from rqretry.core.errors import QueueFull
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Command
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.node import Node
from rqretry.transport.replies import meaning
from rqretry.transport.session import spell
from rqretry.transport.share import Share, executed

AHEAD = (("HSETNX", "incoming", "a", "sum"), ("HSETNX", "bodies", "a", b"x"))
BEHIND: Command[Any] = Command("publish", ("k",), (), list, ids=("a",), ahead=AHEAD)
PLAIN: Command[Any] = replace(BEHIND, ahead=())
OK, QUEUED, DONE = b"OK", b"QUEUED", [b"OK", 1, b""]


@dataclass
class OnItsWay:
    """A call that is sent."""

    command: Command[Any]


def share_of(*commands: Command[Any], **how: bool) -> Share[OnItsWay]:
    node = Node(RedisUrl.parse("redis://h"), ScriptLibrary())
    share: Share[OnItsWay] = Share(node, spell, **how)
    share.calls += [OnItsWay(command) for command in commands]
    return share


def names(share: Share[OnItsWay]) -> list[Any]:
    return [request[0] for request in share.requests()]


def test_a_call_goes_with_what_is_ahead_of_it_in_one_transaction_and_its_script_first() -> None:
    share = share_of(BEHIND)
    transaction = ["MULTI", "HSETNX", "HSETNX", "EVALSHA", "EXEC"]
    assert names(share) == ["SCRIPT", *transaction]
    replies = [b"sha", OK, QUEUED, QUEUED, QUEUED, [1, 1, DONE]]
    assert [reply for _, reply in share.answers(replies)] == [[DONE]]
    assert names(share) == transaction, "the server knows the script by now"
    assert [reply for _, reply in share.answers(replies[1:])] == [[DONE]]
    asking = share_of(BEHIND, asking=True, loading=True)
    assert names(asking) == ["SCRIPT", "ASKING", *transaction]


def test_calls_beside_it_get_their_own_answers_and_confirmations_are_outside() -> None:
    confirmed = replace(BEHIND, confirm=("WAIT", 1, 1000))
    share = share_of(PLAIN, confirmed, PLAIN)
    first, second, third = [b"1"], [b"2"], [b"3"]
    assert names(share)[-3:] == ["EXEC", "WAIT", "EVALSHA"]
    replies = [b"sha", first, OK, QUEUED, QUEUED, QUEUED, [0, 0, second], 1, third]
    assert [reply for _, reply in share.answers(replies)] == [[first], [second, 1], [third]]


@pytest.mark.parametrize("error", [AskError("1 h:1"), OutOfMemoryError("OOM"), NoPermissionError()])
def test_what_is_refused_before_it_is_executed_is_the_answer(error: Exception) -> None:
    abort = ExecAbortError("Transaction discarded because of previous errors.")
    assert executed([OK, error, QUEUED, QUEUED, abort]) is error


def test_a_server_that_is_full_by_then_is_full() -> None:
    abort = ExecAbortError("Transaction discarded because of: OOM command not allowed")
    node = Node(RedisUrl.parse("redis://h"), ScriptLibrary())
    assert isinstance(
        meaning(node, BEHIND, executed([OK, QUEUED, QUEUED, QUEUED, abort])), QueueFull
    )


def test_without_the_right_to_a_transaction_the_answer_is_that_of_the_script_if_it_ran() -> None:
    denied, outside = NoPermissionError("multi"), ExecAbortError("EXEC without MULTI")
    assert executed([denied, 1, 1, DONE, outside]) is DONE
    assert executed([denied, denied, denied, [b"AGAIN"], outside]) is denied
