"""What both stores do, without I/O: send, read, repeat, and load scripts that a server forgot.

A request that got no answer, or an error that will pass, is sent again until the deadline: with
back-off, on a fresh connection, to the server that has the keys by then. Every verb is safe to
repeat. A request that was answered is not sent again: a second lease, for example, would leave the
messages of the first one waiting for their deadline. At the deadline the error is AmbiguousResult
if the request may have been executed, and StoreUnavailable if it certainly was not
(docs/guarantees.md R19).
"""

import math
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import AskError, NoScriptError

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Argument, Block, Command, Each, Operation, Pause
from rqretry.transport.node import (
    BLOCK_MARGIN_SECONDS,
    GROWING,
    Drop,
    EvictionWatch,
    Faults,
    Locate,
    Node,
    Notify,
    Procedure,
    RoundTrip,
    Sleep,
    Together,
    Topology,
    Watch,
    key_of,
)
from rqretry.transport.replies import (
    UNREADABLE,
    Call,
    TryAgain,
    block_seconds,
    check,
    give_up,
    moved,
    result_of,
    unreadable,
)
from rqretry.transport.share import Share

T = TypeVar("T")

_MEMORY: Command[Any] = Command("connect", (), (), bytes, arguments=("INFO", "memory"))
REPEAT_SECONDS = 15.0
"""How long a call is repeated before its error is raised."""
_DRIFT, _FRESH_S = 0.5, 60.0  # how many ms a second two clocks run apart, and for how long
_FIRST_WAIT_S, _LONGEST_WAIT_S, _BLOCK_AGAIN_S = 0.02, 1.0, 0.05


class ServerClock:
    """The server's time as this client estimates it, from the times in replies."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        self._most_ms, self._asked_at = math.inf, -math.inf
        """How far the server's time is ahead of ours at most, and when that was asked."""

    def note(self, now_ms: int, sent_at: float | None = None) -> None:
        """The server reported `now_ms`, after the request was sent at this monotonic time."""
        if now_ms:
            ahead_ms = now_ms - (time.monotonic() if sent_at is None else sent_at) * 1000
            self._offset_ms = ahead_ms
            if sent_at is not None:
                self._most_ms, self._asked_at = ahead_ms + 1, sent_at  # it cuts off a fraction

    def ran_at(self, server_ms: int, sent_at: float) -> float | None:
        """When a call ran that was sent at `sent_at`, never later than it did; None: ask again."""
        now = time.monotonic()
        ran_at = (server_ms - self._most_ms - (now - self._asked_at) * _DRIFT) / 1000
        if ran_at > now:
            self._asked_at = -math.inf
        return None if math.isinf(self._asked_at) else max(sent_at, ran_at)

    @property
    def fresh(self) -> bool:
        """Whether it was asked lately, so that the clocks cannot have drifted far apart."""
        return time.monotonic() - self._asked_at < _FRESH_S

    @property
    def known(self) -> bool:
        """Whether the server was asked yet."""
        return self._offset_ms is not None

    def now_ms(self) -> int:
        """Milliseconds since the epoch on the server; 0 before anything is known."""
        return 0 if self._offset_ms is None else int(self._offset_ms + time.monotonic() * 1000)


def spell(node: Node, command: Command[Any]) -> tuple[Argument, ...]:
    """The arguments of one request."""
    if command.arguments:
        return command.arguments
    known = node.shas.get(command.verb)
    if known is None or known[0] is not node.dialect:
        known = node.dialect, node.scripts.get(command.verb).sha(node.dialect)
        node.shas[command.verb] = known
    return ("EVALSHA", known[1], len(command.keys), *command.keys, *command.args)


def _goes_straight(node: Node, command: Command[Any]) -> bool:
    """Whether a call can be sent as it is: nothing is asked, loaded or confirmed around it."""
    loaded = bool(command.arguments) or command.verb in node.loaded
    return loaded and not command.confirm and command.verb not in GROWING


class Session:
    """Calls to the servers of a topology, as procedures that a driver performs (node.py).

    Attributes:
        topology: Which server holds what.
        clock, clocks: The server's time as this client estimates it; of each node.
        repeat_seconds: How long a call is repeated.
        proved_at: Monotonic time of the last call that the server answered.
        faults: Why calls fail at the moment.
        eviction: Whether a server throws messages away: then nothing is published.
        ahead: Whether a call may be sent before the one in front of it is answered (pipeline.py).
    """

    ahead = True

    def __init__(self, topology: Topology, repeat_seconds: float, notify: Notify = None) -> None:
        self.topology = topology
        self.clock = ServerClock()
        self.clocks: dict[Node, ServerClock] = defaultdict(ServerClock)
        self.repeat_seconds = repeat_seconds
        self.proved_at = 0.0
        self.faults = Faults(topology, notify)
        self.eviction = EvictionWatch(topology, notify)

    def perform(
        self, operation: Operation[T], result: Any = None, error: BaseException | None = None
    ) -> Procedure[T]:
        """Perform an operation to its end, from the `result` or the `error` of its last step on.

        An error of a step is raised inside the operation, which may handle it.
        """
        while True:
            try:
                step = operation.throw(error) if error else operation.send(result)
            except StopIteration as end:
                returned: T = end.value
                return returned
            error = None
            try:
                if isinstance(step, Command):
                    result = yield from self.run(step)
                else:
                    result = yield from self.step(step)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            except BaseException:  # cancelled: the operation learns that now, not when collected
                operation.close()
                raise

    def step(self, step: Any) -> Procedure[Any]:
        """Do one step of an operation."""
        if isinstance(step, Command):
            return (yield from self.run(step))
        if isinstance(step, Block):
            return (yield from self.block(step))
        if isinstance(step, Each):
            return (yield from self.run_each(step.commands, step.seconds))
        if isinstance(step, Pause):
            return (yield Sleep(step.seconds))
        return (yield from self.run_all(step))

    def run(self, command: Command[T], seconds: float | None = None) -> Procedure[T]:
        """Run one command. Raises StoreUnavailable, AmbiguousResult, ConfigError, ScriptError.

        What may succeed later is repeated for `seconds`, for None as long as any call.
        """
        node = self.at_hand()
        result: T
        if node is None or command.confirm or command.ahead:
            (result,) = yield from self._complete([Call(command)], seconds)
            return result
        try:  # a batch of one command for the one server, with fewer steps: most calls are that
            if command.verb in GROWING and time.monotonic() >= self.eviction.ask_at:
                yield from self.eviction.admit()
            (reply,) = yield RoundTrip(node, [spell(node, command)])
        except TryAgain as again:
            yield from self.distrust(node, again)
            return (yield from self.repeat(command, again, seconds))
        if isinstance(reply, Exception):
            return (yield from self.answer(node, command, reply, seconds))
        self._proved(node)
        try:
            return command.decode(reply)
        except UNREADABLE as error:
            raise unreadable(command, error) from None

    def answer(
        self, node: Node, command: Command[T], reply: Any, seconds: float | None = None
    ) -> Procedure[T]:
        """What a server's reply to a command means; what is worth repeating is repeated."""
        if not isinstance(reply, Exception):
            self._proved(node)
            return result_of(node, command, reply)
        share: Share[Call] = Share(node, spell)
        share.calls.append(Call(command))
        yield from self._together((yield from self._settle(share, [reply])))
        result: T
        (result,) = yield from self._finish(share.calls, seconds)
        return result

    def repeat(
        self, command: Command[T], again: TryAgain, seconds: float | None = None
    ) -> Procedure[T]:
        """Run a command whose first attempt has failed; raises what `run` raises."""
        call = Call(command)
        call.put_off(again)
        result: T
        (result,) = yield from self._finish([call], seconds)
        return result

    def run_all(self, commands: Sequence[Command[Any]]) -> Procedure[list[Any]]:
        """Run commands, one round trip to each server; an error is raised after all have run.

        Those of one partition run in their order.
        """
        if len(commands) == 1:
            return [(yield from self.run(commands[0]))]
        return (yield from self._complete([Call(command) for command in commands]))

    def run_each(
        self, commands: Sequence[Command[Any]], seconds: float | None
    ) -> Procedure[list[Any]]:
        """The same, but what fails is a value in its place: its RqretryError, after `seconds`."""
        if len(commands) == 1:
            try:
                return [(yield from self.run(commands[0], seconds))]
            except RqretryError as error:
                return [error]
        calls, node = [Call(command) for command in commands], self.at_hand()
        with suppress(RqretryError):
            if node is not None and all(_goes_straight(node, command) for command in commands):
                yield from self._straight(node, calls)
                yield from self._finish(calls, seconds)
            else:
                yield from self._complete(calls, seconds)
        return [call.outcome for call in calls]

    def _straight(self, node: Node, calls: Sequence[Call]) -> Procedure[None]:
        """Send calls for the one server once, with fewer steps."""
        share: Share[Call] = Share(node, spell)
        share.calls += calls
        try:
            replies = yield RoundTrip(node, [spell(node, call.command) for call in calls])
        except (TryAgain, RqretryError) as error:
            yield from self._unanswered(share, error)
        else:
            yield from self._together((yield from self._settle(share, replies)))
            self._proved()

    def block(self, step: Block) -> Procedure[str | None]:
        """Wait for a wake key; a connection that breaks while waiting counts as a wake-up."""
        request: tuple[Argument, ...] = ("BZPOPMIN", *step.keys, block_seconds(step.seconds))
        try:
            yield from self.locate()
            if self.topology.spread and len(step.keys) > 1:
                return next(iter((yield Watch(step.keys, step.seconds))), None)
            node = self.topology.node(step.keys[0])
            (reply,) = yield RoundTrip(node, [request], step.seconds + BLOCK_MARGIN_SECONDS)
        except TryAgain as error:
            reply = error
        if isinstance(reply, Exception):  # the keys have moved, or are damaged: leasing shows which
            yield Sleep(_BLOCK_AGAIN_S)
        return reply[0].decode() if isinstance(reply, list) else None

    def connect(self) -> Procedure[None]:
        """Make sure that a server can be reached, is new enough, and reported its time.

        What is asked for that is what the first publish would have to ask. Raises what `run` does.
        """
        memory = yield from self.run(_MEMORY)
        if not self.topology.spread:
            self.eviction.hear(memory)

    def locate(self) -> Procedure[None]:
        """Ask which server holds which keys, if that is unknown. Raises TryAgain, ConfigError."""
        if self.topology.stale:
            try:
                yield Locate()
            except TryAgain as again:
                self.faults.lose(str(again.error))
                raise

    def inquire(self) -> Procedure[None]:
        """What a driver performs for Locate."""
        yield from self.topology.inquire()
        for node in self.topology.retired():
            self.clocks.pop(node, None)
            yield Drop(node)

    def distrust(self, node: Node, again: TryAgain) -> Procedure[None]:
        """A call to a server failed: its idle connections are as broken as the call's own was."""
        self.faults.note(node, str(again.error))
        node.loaded.clear()  # it may have been started anew, without the scripts
        node.greeted = False  # or replaced by one of another version, with another form of them
        self.topology.suspect(node)
        yield Drop(node)

    @property
    def greeted(self) -> bool:
        """Whether the server has reported its time, and need not be found again."""
        return self.clock.known and not self.topology.stale

    def note_time(self, node: Node, now_ms: int, sent_at: float) -> None:
        """A server has reported its time."""
        self.clocks[node].note(now_ms, sent_at)
        self.clock.note(now_ms, sent_at)

    def at_hand(self) -> Node | None:
        """The one server there is, if there is nothing to find out about it first."""
        topology = self.topology
        if topology.spread or topology.stale:
            return None
        (node,) = topology.nodes.values()
        return node if node.greeted else None

    def _proved(self, node: Node | None = None) -> None:
        if node is not None and node.fault is not None:
            self.faults.note(node, None)
        self.proved_at = time.monotonic()
        if self.faults.everywhere is not None:
            self.faults.lose(None)

    def _complete(
        self, calls: Sequence[Call], seconds: float | None = None
    ) -> Procedure[list[Any]]:
        with suppress(TryAgain):
            yield from self._attempt(calls)
        return (yield from self._finish(calls, seconds))

    def _finish(self, calls: Sequence[Call], seconds: float | None) -> Procedure[list[Any]]:
        """Repeat what is open until it is answered, once at least; then not after `seconds`."""
        patience = self.repeat_seconds if seconds is None else seconds
        end, wait = time.monotonic() + patience, _FIRST_WAIT_S
        while any(call.open for call in calls):
            try:
                yield from self._attempt(calls)
            except TryAgain as last:
                if time.monotonic() >= end:
                    raise give_up(calls, last) from last
                yield Sleep(random.uniform(0, wait))
                wait = min(2 * wait, _LONGEST_WAIT_S)
        check(calls)
        return [call.result for call in calls]

    def _attempt(self, calls: Sequence[Call]) -> Procedure[None]:
        """Send what is open, once. Raises TryAgain if some of it still is, or a definite error."""
        try:
            yield from self.locate()
            yield from self.eviction.admit_all(calls)
        except TryAgain as again:
            for call in calls:
                if call.open:
                    call.put_off(again)
            raise
        yield from self._together(self._shares(calls))
        check(calls)
        self._proved()

    def _shares(self, calls: Sequence[Call]) -> list[Share[Call]]:
        """Divide what is open among the servers."""
        shares: dict[tuple[Node, bool], Share[Call]] = {}
        for call in calls:
            if not call.open:
                continue
            asked, call.asked = call.asked, None
            try:
                node = asked or self.topology.node(key_of(call.command))
            except TryAgain as again:
                call.put_off(again)
                continue
            share = shares.setdefault(
                (node, asked is not None), Share(node, spell, asking=bool(asked))
            )
            share.calls.append(call)
        return list(shares.values())

    def _together(self, shares: Sequence[Share[Call]]) -> Procedure[None]:
        while shares:
            outcomes = yield Together([(share.node, share.requests) for share in shares])
            shares, sent = [], shares
            for share, outcome in zip(sent, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    yield from self._unanswered(share, outcome)
                else:
                    shares += yield from self._settle(share, outcome)

    def _unanswered(self, share: Share[Call], error: Exception) -> Procedure[None]:
        for call in share.calls:
            call.fail(error)
        if isinstance(error, TryAgain):
            yield from self.distrust(share.node, error)

    def _settle(self, share: Share[Call], replies: list[Any]) -> Procedure[list[Share[Call]]]:
        """Pass a server's replies to their calls; returns what to send again with its scripts."""
        node, fault = share.node, None
        again: Share[Call] = Share(node, spell, asking=share.asking, loading=True)
        for call, (reply, *confirmed) in share.answers(replies):
            if isinstance(reply, NoScriptError) and not share.loading:
                again.calls.append(call)
            elif self.topology.spread and isinstance(reply, AskError):  # MOVED is one of these
                call.asked = self.topology.redirected(node, reply)
                call.fail(moved(node))
            else:
                fault = call.read(node, reply, confirmed) or fault
        self.faults.note(node, str(fault.error) if fault else None)
        if fault and fault.elsewhere:
            yield from self.distrust(node, fault)
        return [again] if again.calls else []
