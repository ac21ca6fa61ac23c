"""Every writing script, with one of its commands refused: nothing is lost, stuck or half done.

A user who lacks a right keeps what a script wrote before; the script undoes it, or upkeep and the
next call complete it. Unlike a cut (test_crash_points), a refusal also hits the undo.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from rqretry.checks.acl import inner_commands
from rqretry.core.errors import RqretryError
from rqretry.protocol import transaction as transactions
from rqretry.protocol.command import Command
from rqretry.protocol.scripts import ScriptLibrary
from tests.conftest import ServerOf
from tests.lua import test_feed_dlq_group, test_halves, test_transactions
from tests.lua.conftest import virtual_time, world_on
from tests.lua.crash_cases import CASES, Case, overdue, overdue_again
from tests.lua.crash_cases_kept import KEPT
from tests.lua.crash_cases_ordered import ORDERED
from tests.lua.crash_cases_repair import REPAIRS
from tests.lua.test_broadcast import broadcast, entries
from tests.lua.test_crash_points import check_nothing_lost, everywhere, groups, work_once
from tests.support.builders import HOUR, prepared
from tests.support.world import World

ALIKE = {
    "audit_append", "compare_and_set", "rate_set", "rate_take", "record_series", "register",
    "tally",
}  # fmt: skip
"""They write one structure; register only tells who is alive, and is repeated every few seconds;
what record_series lacks of a minute, the next one has."""
BY_OPERATORS = "replay"
"""Whoever asked for it is told that it may be incomplete, and the next call completes it."""
MOST_ROUNDS = 40
UNMOVED = {"counters", "g:wake", "h:wake"}
"""What a publish that was undone may have changed."""

Act = Callable[[World], object]


def subscribed_and(start: Act) -> Act:
    def begin(world: World) -> None:
        world.subscribe()
        start(world)

    return begin


def dead_letters_of_g(world: World) -> None:
    test_feed_dlq_group.view(world)
    world.dead_letter("a", "b")


def partition(world: World) -> Any:
    return {key: v for key, v in world.state().items() if key not in ("counters", "events")}


def transaction(world: World) -> Any:
    return test_transactions.record(world), test_transactions.indexes(world)


OTHERS: dict[str, tuple[Act, Act, Act]] = {
    **{
        name: (subscribed_and(start), act, partition)
        for name, (start, act) in test_halves.CUTS.items()
    },
    **{name: (*case, transaction) for name, case in test_transactions.CUTS.items()},
    "feed": (
        dead_letters_of_g,
        test_feed_dlq_group.feed,
        lambda w: test_feed_dlq_group.lease(w).ids,  # what is listed twice is leased once
    ),
}
"""Scripts that the crash cases leave out: begin, the call, and what to compare."""


@cache
def commands(server_of: ServerOf) -> list[str]:
    """What scripts call that a server takes for a write."""
    client = world_on(server_of, "redis-7", virtual_time()).client
    writing = client.execute_command("ACL CAT", "write")
    names = {name if isinstance(name, str) else name.decode() for name in writing}
    return sorted(inner_commands(ScriptLibrary()) & {name.upper() for name in names})


def was_refused(world: World, command: str, act: Act) -> bool:
    world.client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        act(world)
    except RqretryError as error:
        assert "does not let this user" in str(error), error
        return True
    finally:
        world.client.execute_command("ACL", "SETUSER", "default", "+@all")
    return False


def refusals(server_of: ServerOf, start: Act, act: Act) -> Iterable[tuple[str, World]]:
    """The call, begun anew with each command refused that it makes."""
    for command in commands(server_of):
        world = world_on(server_of, "redis-7", virtual_time())
        start(world)
        if was_refused(world, command, act):
            yield command, world


@pytest.mark.parametrize("case", [*CASES, *KEPT, *ORDERED, *REPAIRS], ids=lambda case: case.name)
@pytest.mark.parametrize("repeated", [False, True], ids=["left", "repeated"])
def test_a_refused_command_leaves_nothing_lost_or_stuck(
    server_of: ServerOf, case: Case, *, repeated: bool
) -> None:
    before: dict[str, set[str]] = {}

    def start(world: World) -> None:
        case.start(world)
        before.update(everywhere(world))

    for command, world in refusals(server_of, start, case.act):
        check_nothing_lost(world, case, before)
        case.meanwhile(world)
        if repeated or case.name.startswith(BY_OPERATORS):
            case.act(world)
        if not groups(world):
            world.subscribe("g")
        case.after(world)
        go_on(world)
        assert world.findings() == [], command


def go_on(world: World) -> None:
    """Everybody works and looks after things, until there is nothing left to do."""
    commits: Counter[tuple[str, str]] = Counter()
    for _ in range(MOST_ROUNDS):
        if not work_once(world, commits):
            break
        world.advance(HOUR)
    world.sweep()
    assert max(commits.values(), default=1) == 1


@pytest.mark.parametrize(
    "case",
    [case for case in (*CASES, *ORDERED) if case.name.startswith("publish")],
    ids=lambda case: case.name,
)
def test_a_refused_publish_leaves_nothing_or_is_done(server_of: ServerOf, case: Case) -> None:
    for command in commands(server_of):
        world = world_on(server_of, "redis-7", virtual_time())
        case.start(world)
        with world.changes() as changed:
            if not was_refused(world, command, case.act):
                continue
        if not any(key.startswith("lane:") for key in changed):
            assert changed.keys() <= UNMOVED, command
            assert not world.client.hexists(world.keys.meta, "?")


@pytest.mark.parametrize("start", [overdue, overdue_again])
def test_a_refused_expire_ends_a_delivery_or_leaves_it_as_it_was(
    server_of: ServerOf, start: Act
) -> None:
    for command in commands(server_of):
        world = world_on(server_of, "redis-7", virtual_time())
        start(world)
        with world.changes() as changed:
            if not was_refused(world, command, lambda w: w.expire()):
                continue
        if "g:inflight" not in changed:
            assert not changed.keys() & {"g:retry", "g:attempts"}, command


@pytest.mark.parametrize("name", OTHERS)
def test_a_refused_call_and_a_repeat_are_as_good_as_one_call(
    server_of: ServerOf, name: str
) -> None:
    start, act, look = OTHERS[name]
    whole = world_on(server_of, "redis-7", virtual_time())
    start(whole)
    act(whole)
    wanted = look(whole)
    for command, world in refusals(server_of, start, act):
        if name == "prepare":
            assert test_halves.unexplained(world) == [], command
        if name == "enlist":
            assert bool(transaction_exists(world)) <= bool(indexes(world).get("checks")), command
        act(world)
        if name == "defer for good" and "checks" in indexes(world):
            test_transactions.advance(world, test_transactions.LEASE_MS)
            test_transactions.claim(world, "shop")  # it tidies what a refused ZREM left
        assert look(world) == wanted, command


def indexes(world: World) -> dict[str, dict[str, int]]:
    return test_transactions.indexes(world)


def transaction_exists(world: World) -> object:
    return world.run(transactions.read(test_transactions.KEYS, "a"))


@pytest.mark.parametrize("start", [test_transactions.due, test_transactions.committed])
def test_a_claim_that_is_refused_is_taken_by_the_next_one(server_of: ServerOf, start: Act) -> None:
    for command, world in refusals(server_of, start, lambda w: test_transactions.claim(w, "shop")):
        test_transactions.advance(world, 2 * test_transactions.LEASE_MS)
        taken = test_transactions.claim(world, "shop").records
        assert [record.id for record in taken] == ["a"], command


@pytest.mark.parametrize("others", [(), ("g",)], ids=["alone", "one"])
def test_a_refused_publish_leaves_no_gap_that_a_broadcast_group_has_missed(
    server_of: ServerOf, others: tuple[str, ...]
) -> None:
    def publish(world: World) -> None:
        world.publish(prepared("x", digest="d"), prepared("y"))

    for command, world in refusals(server_of, lambda w: broadcast(w, *others), publish):
        world.publish("z")
        missed = 0
        for entry in entries(world):
            assert entry.first == missed, command
            missed += len(entry.messages)


def test_no_script_is_left_out(server_of: ServerOf) -> None:
    """What the calls above run are all scripts that write."""
    ran: set[str] = set()
    starts = [(case.start, case.act) for case in (*CASES, *KEPT, *ORDERED, *REPAIRS)]
    starts += [(start, act) for start, act, _ in OTHERS.values()]
    starts.append((test_transactions.due, lambda w: test_transactions.claim(w, "shop")))
    for start, act in starts:
        world = world_on(server_of, "redis-7", virtual_time())
        start(world)
        run = world.backend.run

        def noted(command: Command[Any], run: Callable[..., Any] = run) -> Any:
            ran.add(command.verb)
            return run(command)

        world.backend = replace(world.backend, run=noted)
        act(world)
    library = ScriptLibrary()
    writing = {name for name in library.names() if not library.get(name).read_only}
    assert writing - ran == ALIKE
