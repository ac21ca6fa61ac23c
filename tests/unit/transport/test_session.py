"""The session against planned replies: what it sends, repeats and raises, without any server."""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError, NoScriptError, ReadOnlyError, ResponseError

from rqretry.core.errors import (
    AmbiguousResult,
    CodecError,
    ConfigError,
    QueueFull,
    RqretryError,
    ScriptError,
    StoreUnavailable,
)
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Block, Command, Operation, Pause
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.node import (
    Acquire,
    Ask,
    Close,
    Drop,
    Effect,
    Locate,
    Node,
    Receive,
    Release,
    RoundTrip,
    Send,
    Sleep,
    Together,
    Watch,
)
from rqretry.transport.pipeline import in_turn
from rqretry.transport.replies import TryAgain, broken, refused
from rqretry.transport.session import ServerClock, Session
from rqretry.transport.topology import topology_of
from rqretry.transport.wakeup import Wait

PING: Command[Any] = Command("ping", (), (), bytes, arguments=("PING",))
NOSCRIPT = NoScriptError("No matching script")
LOST = "the connection breaks behind the request"
REFUSED = "nobody answers"


def publish(key: str = "k", id_: str = "id-1") -> Command[Any]:
    return Command("publish", (key,), (id_,), list, ids=(id_,))


class Connection:
    """What a session gets for Acquire."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sent: list[Any] = []
        self.client_id = 0


class Plan:
    """A driver that performs effects as the test has planned, and keeps a list of them.

    `replies` is asked for the reply to each request: (address, request) -> reply; LOST and REFUSED
    are what happens to the connection instead.
    """

    def __init__(self, session: Session, replies: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self.session = session
        self.replies = replies
        self.requests: list[tuple[Any, ...]] = []
        self.effects: list[str] = []
        self.slept: list[float] = []
        self.open = 0

    def drive(self, procedure: Any) -> Any:
        outcome, error = None, None
        while True:
            try:
                effect = procedure.send(outcome) if error is None else procedure.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            self.effects.append(type(effect).__name__)
            try:
                outcome = self.do(effect)
            except (TryAgain, RqretryError, KeyboardInterrupt) as caught:
                error = caught

    def do(self, effect: Effect) -> Any:  # noqa: C901 - one arm for each effect
        match effect:
            case RoundTrip(node, requests):
                return self.exchange(node, requests)
            case Together(trips):
                return [self.either(node, requests) for node, requests in trips]
            case Acquire(node):
                self.open += 1
                return Connection(node)
            case Send(connection, requests):
                connection.sent += requests
            case Receive(connection, most):
                now, connection.sent = connection.sent[:most], connection.sent[most:]
                return self.exchange(connection.node, now)
            case Release() | Close():
                self.open -= 1
            case Sleep(seconds):
                self.slept.append(seconds)
            case Locate():
                self.drive(self.session.inquire())
            case Ask(url, requests):
                node = Node(url, ScriptLibrary())
                try:
                    return self.exchange(node, requests)
                except TryAgain as again:
                    return again
            case Watch(keys):
                return {keys[-1]}
            case Drop(node):
                node.idle.clear()
        return None

    def either(self, node: Node, requests: Callable[[], Any]) -> Any:
        try:
            return self.exchange(node, requests())
        except (TryAgain, RqretryError) as error:
            return error

    def exchange(self, node: Node, requests: Iterable[tuple[Any, ...]]) -> list[Any]:
        node.greeted = True
        replies = []
        for request in requests:
            reply = self.replies(node.address, request)
            if reply is REFUSED:
                raise refused(node, ConnectionRefusedError("nobody"))
            self.requests.append((node.address, *request))
            if reply is LOST:
                raise broken(node, ConnectionResetError("gone"), sent=True)
            if isinstance(reply, BaseException) and not isinstance(reply, Exception):
                raise reply
            replies.append(reply)
        return replies

    def names(self) -> list[Any]:
        """What was sent, without the arguments of scripts."""
        return [request[1] for request in self.requests]


def plan(*replies: Any, url: str = "redis://h", repeat_s: float = 0.0) -> Plan:
    """Replies in turn, the last one for ever; the server is known already."""
    left = list(replies)

    def reply(_: str, __: tuple[Any, ...]) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    planned = planned_for(url, reply, repeat_s)
    for node in planned.session.topology.nodes.values():
        node.greeted = True
    return planned


def planned_for(url: str, reply: Callable[..., Any], repeat_s: float = 0.0) -> Plan:
    session = Session(topology_of(RedisUrl.parse(url), ScriptLibrary()), repeat_s)
    session.eviction.ask_at = math.inf  # test_node.py is about that
    return Plan(session, reply)


# -- one command ---------------------------------------------------------------------------------


def test_the_plain_case_is_one_round_trip() -> None:
    planned = plan([b"OK"])
    assert planned.drive(planned.session.run(publish())) == [b"OK"]
    assert planned.effects == ["RoundTrip"]
    assert planned.session.proved_at > 0
    assert planned.session.faults.now is None


def test_a_script_that_is_not_known_is_loaded_and_run_again() -> None:
    planned = plan(NOSCRIPT, b"sha", [b"OK"])
    assert planned.drive(planned.session.run(publish())) == [b"OK"]
    assert planned.names() == ["EVALSHA", "SCRIPT", "EVALSHA"]
    assert planned.slept == []


def test_a_server_that_never_keeps_a_script_is_reported() -> None:
    planned = plan(NOSCRIPT)
    with pytest.raises(ScriptError, match="No matching script"):
        planned.drive(planned.session.run(publish()))


def test_what_was_lost_after_sending_is_repeated_and_ambiguous_in_the_end() -> None:
    planned = plan(LOST)
    with pytest.raises(AmbiguousResult) as caught:
        planned.drive(planned.session.run(publish()))
    assert caught.value.ids == ("id-1",)
    assert planned.names() == ["EVALSHA", "EVALSHA"]  # one repetition always
    assert planned.session.faults.now is not None


def test_what_was_never_sent_certainly_did_not_happen() -> None:
    planned = plan(REFUSED)
    with pytest.raises(StoreUnavailable, match="h:6379 is unreachable"):
        planned.drive(planned.session.run(publish()))
    assert planned.requests == []


def test_what_was_sent_once_stays_ambiguous_when_later_attempts_are_refused() -> None:
    planned = plan(LOST, REFUSED)
    with pytest.raises(AmbiguousResult):
        planned.drive(planned.session.run(publish()))


def test_a_lost_reply_of_a_read_is_only_unavailable() -> None:
    planned = plan(LOST)
    with pytest.raises(StoreUnavailable):
        planned.drive(planned.session.run(PING))


def test_a_repetition_succeeds_on_a_new_connection_and_ends_the_fault() -> None:
    planned, changes = plan(LOST, [b"OK"]), []
    faults = planned.session.faults
    faults._notify = lambda: changes.append(faults.now)
    assert planned.drive(planned.session.run(publish())) == [b"OK"]
    assert "Drop" in planned.effects[: planned.effects.index("Together")]
    assert [fault is None for fault in changes] == [False, True]


def test_the_pauses_between_attempts_grow_and_end_with_the_patience() -> None:
    planned = plan(REFUSED, repeat_s=0.05)
    end = time.monotonic() + 0.05

    def sleep(effect: Any, do: Callable[[Any], Any] = planned.do) -> Any:
        if isinstance(effect, Sleep):
            time.sleep(0.01)
        return do(effect)

    planned.do = sleep  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        planned.drive(planned.session.run(PING))
    assert time.monotonic() >= end
    assert 2 <= len(planned.slept) <= 7
    assert all(pause <= 0.02 * 2**n for n, pause in enumerate(planned.slept))


@pytest.mark.parametrize("code", ["LOADING", "BUSY", "NOREPLICAS", "TRYAGAIN"])
def test_what_passes_is_repeated_without_ambiguity(code: str) -> None:
    planned = plan(ResponseError(f"{code} wait"), [b"OK"])
    assert planned.drive(planned.session.run(publish())) == [b"OK"]
    refusing = plan(ResponseError(f"{code} wait"))
    with pytest.raises(StoreUnavailable):
        refusing.drive(refusing.session.run(publish()))


def test_a_replica_is_distrusted_and_a_busy_server_is_not() -> None:
    for error, dropped in ((ReadOnlyError("no"), True), (ResponseError("BUSY x"), False)):
        planned = plan(error, [b"OK"])
        planned.drive(planned.session.run(publish()))
        assert ("Drop" in planned.effects) is dropped


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ResponseError("OOM command not allowed"), QueueFull),
        (ResponseError("NOPERM no"), ConfigError),
        (MovedError("1 other:6379"), ConfigError),
        (ResponseError("WRONGTYPE Operation against a key"), ScriptError),
    ],
)
def test_a_definite_error_is_raised_at_once(reply: Exception, error: type[Exception]) -> None:
    planned = plan(reply)
    with pytest.raises(error):
        planned.drive(planned.session.run(publish()))
    assert planned.names() == ["EVALSHA"]
    assert planned.session.faults.now is None  # it answers


def test_a_reply_that_cannot_be_read_is_an_error_of_its_call_and_nothing_is_repeated() -> None:
    planned = plan(7)
    with pytest.raises(AmbiguousResult, match=r"publish cannot be read \(TypeError\)"):
        planned.drive(planned.session.run(publish()))
    assert planned.names() == ["EVALSHA"]
    unreadable: Command[int] = Command("read", ("k",), (), int, arguments=("GET", "k"))
    planned = plan(b"seven", b"7")
    error, seven = planned.drive(planned.session.run_each([unreadable, unreadable], 0.0))
    assert (type(error), seven) == (CodecError, 7)


# -- several commands ----------------------------------------------------------------------------


def test_scripts_go_ahead_of_a_batch_once() -> None:
    planned = plan([b"OK"])
    both = [publish(id_="a"), publish(id_="b")]
    assert planned.drive(planned.session.run_all(both)) == [[b"OK"], [b"OK"]]
    assert planned.names() == ["SCRIPT", "EVALSHA", "EVALSHA"]
    planned.drive(planned.session.run_all(both))
    assert planned.names()[3:] == ["EVALSHA", "EVALSHA"]


def test_a_server_that_was_started_anew_is_sent_the_scripts_again() -> None:
    planned = plan(b"sha", [b"1"], [b"2"], [b"3"], LOST, b"sha", [b"4"], [b"5"])
    commands = [publish(id_="a"), publish(id_="b")]
    planned.drive(planned.session.run_all(commands))
    assert planned.drive(planned.session.run_all(commands)) == [[b"4"], [b"5"]]


def test_what_was_answered_is_not_sent_again_because_of_what_was_not() -> None:
    busy = ResponseError("BUSY wait")
    planned = plan(b"sha", [b"first"], busy, [b"second"])
    commands = [publish(id_="a"), publish(id_="b")]
    assert planned.drive(planned.session.run_all(commands)) == [[b"first"], [b"second"]]
    assert [request[-1] for request in planned.requests if request[1] == "EVALSHA"] == [
        "a",
        "b",
        "b",
    ]


def test_each_failure_is_a_value_in_its_place() -> None:
    planned = plan(b"sha", [b"first"], ResponseError("NOPERM no"), ResponseError("BUSY wait"))
    commands = [publish(id_=id_) for id_ in "abc"]
    first, second, third = planned.drive(planned.session.run_each(commands, 0.0))
    assert first == [b"first"]
    assert isinstance(second, ConfigError)
    assert isinstance(third, StoreUnavailable)


def test_a_confirmation_is_read_behind_its_command() -> None:
    def joined(result: Any, confirmed: Any) -> Any:
        return result, confirmed

    command: Command[Any] = Command(
        "publish", ("k",), (), list, ids=("a",), confirm=("WAIT", 1, 100), confirmed=joined
    )
    planned = plan([b"OK"], 1)
    assert planned.drive(planned.session.run(command)) == ([b"OK"], 1)
    assert planned.names() == ["EVALSHA", "WAIT"]


def test_a_confirmation_that_has_to_wait_leaves_the_command_in_doubt() -> None:
    command: Command[Any] = Command("publish", ("k",), (), list, ids=("a",), confirm=("WAIT", 1, 1))
    planned = plan([b"OK"], ReadOnlyError("failing over"))
    with pytest.raises(AmbiguousResult):
        planned.drive(planned.session.run(command))


def test_a_command_without_patience_is_tried_twice_and_no_more() -> None:
    planned = plan(LOST, repeat_s=60.0)
    with pytest.raises(StoreUnavailable):
        planned.drive(planned.session.run(PING, 0.0))
    assert planned.names() == ["PING", "PING"]
    assert planned.session.faults.now is not None


def test_a_single_failure_is_a_value_too() -> None:
    planned = plan(LOST, repeat_s=60.0)
    (error,) = planned.drive(planned.session.run_each([publish()], 0.0))
    assert isinstance(error, AmbiguousResult)
    assert planned.names() == ["EVALSHA", "EVALSHA"]


# -- operations ----------------------------------------------------------------------------------


def test_an_operation_gets_results_and_errors_of_its_steps() -> None:
    seen: list[Any] = []

    def operation() -> Operation[str]:
        seen.append((yield publish()))
        yield Pause(3.0)
        seen.append((yield [PING, PING]))
        try:
            yield publish()
        except ConfigError as error:
            seen.append(type(error))
        return "end"

    planned = plan([b"OK"], b"PONG", b"PONG", ResponseError("NOPERM no"))
    assert planned.drive(planned.session.perform(operation())) == "end"
    assert seen == [[b"OK"], [b"PONG", b"PONG"], ConfigError]
    assert planned.slept == [3.0]


def test_an_operation_that_is_interrupted_is_closed() -> None:
    closed: list[bool] = []

    def operation() -> Operation[None]:
        try:
            yield publish()
        finally:
            closed.append(True)

    planned = plan(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        planned.drive(planned.session.perform(operation()))
    assert closed == [True]


@pytest.mark.parametrize(
    ("reply", "woken"), [([b"k", b"1", b"0"], "k"), (None, None), (LOST, None)]
)
def test_a_connection_that_breaks_while_waiting_counts_as_a_wake_up(reply: Any, woken: Any) -> None:
    planned = plan(reply)
    assert planned.drive(planned.session.block(Block(("k",), 0.5))) == woken
    assert planned.names() == ["BZPOPMIN"]


# -- clusters and Sentinels ----------------------------------------------------------------------

CLUSTER = "redis+cluster://a:1,b:2"
HALVES = [[0, 8191, [b"a", 1]], [8192, 16383, [b"b", 2]]]
"""Slots of the keys "k" (7629) and "l" (11562)."""


def cluster(reply: Callable[[str, tuple[Any, ...]], Any]) -> Plan:
    def answer(address: str, request: tuple[Any, ...]) -> Any:
        return HALVES if request[0] == "CLUSTER" else reply(address, request)

    return planned_for(CLUSTER, answer)


def served(planned: Plan, name: str = "EVALSHA") -> list[str]:
    return [request[0] for request in planned.requests if request[1] == name]


def test_commands_go_to_the_owners_of_their_keys_together() -> None:
    planned = cluster(lambda address, _: [address])
    commands = [publish("k"), publish("l"), publish("k")]
    assert planned.drive(planned.session.run_all(commands)) == [["a:1"], ["b:2"], ["a:1"]]
    assert planned.effects.count("Together") == 1


def test_moved_is_followed_and_the_slots_are_asked_for_again() -> None:
    moves = [MovedError("7629 b:2")]
    planned = cluster(lambda _, __: moves.pop() if moves else [b"OK"])
    assert planned.drive(planned.session.run(publish("k"))) == [b"OK"]
    assert served(planned, "CLUSTER") == ["a:1", "a:1"]


def test_ask_is_followed_once_with_asking() -> None:
    asks = [AskError("7629 b:2")]

    def reply(address: str, request: tuple[Any, ...]) -> Any:
        if request[0] == "ASKING":
            return b"OK"
        return asks.pop() if asks else [address]

    planned = cluster(reply)
    assert planned.drive(planned.session.run(publish("k"))) == ["b:2"]
    assert [request[:2] for request in planned.requests[-2:]] == [
        ("b:2", "ASKING"),
        planned.requests[-1][:2],
    ]
    assert planned.drive(planned.session.run(publish("k"))) == ["a:1"]


def test_a_slot_under_way_is_tried_again() -> None:
    busy = [ResponseError("TRYAGAIN multiple keys")]
    planned = cluster(lambda _, __: busy.pop() if busy else [b"OK"])
    assert planned.drive(planned.session.run(publish("k"))) == [b"OK"]


def test_one_server_that_is_down_takes_nothing_from_the_others() -> None:
    planned = cluster(lambda address, _: REFUSED if address == "a:1" else [b"OK"])
    first, second = planned.drive(planned.session.run_each([publish("k"), publish("l")], 0.0))
    assert isinstance(first, StoreUnavailable)
    assert second == [b"OK"]
    assert served(planned) == ["b:2"]


def test_a_cluster_that_nobody_answers_for_is_unavailable() -> None:
    planned = planned_for(CLUSTER, lambda _, __: REFUSED)
    with pytest.raises(StoreUnavailable, match="none of its nodes can be reached"):
        planned.drive(planned.session.run(publish()))
    (error,) = planned.drive(planned.session.run_each([publish()], 0.0))
    assert isinstance(error, StoreUnavailable)
    assert planned.drive(planned.session.block(Block(("k", "l"), 1.0))) is None


def test_keys_of_two_slots_are_watched_apart() -> None:
    planned = cluster(lambda _, __: None)
    assert planned.drive(planned.session.block(Block(("k", "l"), 1.0))) == "l"
    assert "Watch" in planned.effects


def test_after_a_failover_the_sentinels_are_asked_again() -> None:
    primary = [b"p1"]

    def reply(address: str, request: tuple[Any, ...]) -> Any:
        if request[:2] == ("SENTINEL", "MASTER"):
            return [b"config-epoch", b"1"]
        if request[0] == "SENTINEL":
            return [primary[0], b"6379"]
        if address.startswith("p1"):
            primary[0] = b"p2"
            return LOST
        return [address]

    planned = planned_for("redis+sentinel://s/svc", reply)
    assert planned.drive(planned.session.run(publish())) == ["p2:6379"]


# -- one key of several ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "woken"),
    [([b"k", b"1", b"0"], True), (None, False), (ReadOnlyError("no"), None), (LOST, None)],
)
def test_a_key_is_waited_for_on_a_connection_that_is_given_back_or_closed(
    reply: Any, woken: bool | None
) -> None:
    planned, wait = plan(7, reply), Wait("k")
    planned.drive(wait.run(planned.session.topology, 0.5))
    assert wait.woken is woken
    assert planned.open == 0
    assert (planned.slept == []) is (woken is not None)


def test_whoever_waits_is_unblocked_and_a_wake_up_too_many_is_put_back() -> None:
    planned, wait = plan(7, [b"k", b"1", b"0"], 1), Wait("k")
    planned.drive(wait.unblock())
    assert planned.requests == []  # nothing is blocked yet
    planned.drive(wait.run(planned.session.topology, 0.5))
    planned.drive(wait.unblock())
    planned.drive(wait.put_back())
    assert [request[1:] for request in planned.requests[2:]] == [
        ("CLIENT", "UNBLOCK", 7),
        ("ZADD", "k", 0, "1"),
    ]


# -- in turn -------------------------------------------------------------------------------------


def calls(ids: Sequence[str]) -> Iterable[Operation[Any]]:
    def operation(id_: str) -> Operation[Any]:
        return (yield publish(id_=id_))

    return (operation(id_) for id_ in ids)


def test_calls_in_turn_are_sent_before_the_one_in_front_is_answered() -> None:
    planned = plan([b"1"], [b"2"], [b"3"])
    assert planned.drive(in_turn(planned.session, calls("abc"))) == [[b"1"], [b"2"], [b"3"]]
    sends = [name for name in planned.effects if name in ("Send", "Receive")]
    assert sends == ["Send", "Send", "Receive", "Send", "Receive", "Receive"]
    assert planned.open == 0


@pytest.mark.parametrize("bad", [LOST, NOSCRIPT, ResponseError("BUSY wait")])
def test_what_fails_in_turn_is_repeated_by_itself_and_in_its_order(bad: Any) -> None:
    left = [bad]

    def reply(_: str, request: tuple[Any, ...]) -> Any:
        return left.pop() if left else [request[-1]]

    planned = planned_for("redis://h", reply)
    assert planned.drive(in_turn(planned.session, calls("abc"))) == [["a"], ["b"], ["c"]]
    assert planned.open == 0


def test_what_is_refused_in_turn_is_an_answer_of_its_own() -> None:
    planned = plan([b"1"], ResponseError("NOPERM no"), [b"3"])
    first, second, third = planned.drive(in_turn(planned.session, calls("abc")))
    assert (first, third) == ([b"1"], [b"3"])
    assert isinstance(second, ConfigError)


def test_what_is_interrupted_in_turn_gives_its_connection_back() -> None:
    planned = plan([b"1"], KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        planned.drive(in_turn(planned.session, calls("abc")))
    assert planned.open == 0
    assert "Close" in planned.effects


# -- the server's clock -----------------------------------------------------------------------


def test_the_server_s_clock_is_estimated_from_the_time_of_sending() -> None:
    clock = ServerClock()
    assert not clock.known
    assert clock.now_ms() == 0

    clock.note(0)
    assert not clock.known

    clock.note(5_000_000, sent_at=time.monotonic() - 1)
    assert 5_000_900 <= clock.now_ms() <= 5_002_000


class Clocks:
    """Our clock, and that of a server, which cuts off the fraction of a millisecond."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.ahead_ms, self.faster = 5_000_000.3, 0.0
        monkeypatch.setattr("rqretry.transport.session.time", SimpleNamespace(monotonic=self._now))

    def _now(self) -> float:
        return self.now

    def server_ms(self) -> int:
        return int(self.now * 1000 * (1 + self.faster) + self.ahead_ms)


def test_a_call_never_ran_later_than_it_did_by_what_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, clock, chance = Clocks(monkeypatch), ServerClock(), random.Random(4)
    assert clock.ran_at(5, clocks.now) is None, "nothing is known of the server"
    clock.note(clocks.server_ms())
    assert clock.ran_at(clocks.server_ms(), clocks.now) is None, "nor when that was asked"
    for clocks.faster in (0.0, 0.0004, -0.0004):
        for _ in range(100):
            asked_at, clocks.now = clocks.now, clocks.now + 0.001 * chance.random()
            now_ms, clocks.now = clocks.server_ms(), clocks.now + 0.001 * chance.random()
            clock.note(now_ms, asked_at)
            clock.note(now_ms)  # what has no time of sending is no bound
            sent_at, clocks.now = clocks.now, clocks.now + 20 * chance.random()
            now_ms, ran_at = clocks.server_ms(), clocks.now
            clocks.now += chance.choice([0.0, 0.0001, 5.0])  # its answer may be late
            found = clock.ran_at(now_ms, sent_at)
            assert found is not None
            assert max(sent_at, ran_at - 0.03) <= found <= ran_at


def test_a_server_time_that_was_put_forward_tells_nothing_until_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, clock = Clocks(monkeypatch), ServerClock()
    clock.note(clocks.server_ms(), clocks.now)
    clocks.ahead_ms += 100
    assert clock.ran_at(clocks.server_ms(), clocks.now - 10) is None
    assert clock.ran_at(clocks.server_ms() - 1000, clocks.now - 10) is None
    assert not clock.fresh
    clock.note(clocks.server_ms(), clocks.now)
    assert clock.ran_at(clocks.server_ms(), clocks.now - 10) == pytest.approx(clocks.now, abs=0.003)
    clocks.now += 61
    assert not clock.fresh, "by now the clocks may have drifted apart"
