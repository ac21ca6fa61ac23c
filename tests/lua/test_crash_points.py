"""Every writing script, cut at every Redis command it makes (reliability 7.2).

Redis keeps what a script wrote before its error, so these are all the partial outcomes there are.
After the cut nothing may be lost; then the verbs run on, and every message must end committed or
dead, once for each group. A lease number skipped and an attempt counted too many are accepted.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rqretry.commands import administering
from rqretry.commands.consuming import Receipt
from rqretry.errors import ScriptError
from tests.conftest import ServerOf
from tests.lua.conftest import cut, world_on
from tests.support.builders import HOUR, SECOND, failure, first, prepared
from tests.support.lua_hooks import CUT_KEY
from tests.support.world import VISIBILITY_MS, State, World

MOST_CALLS = 60
MOST_ROUNDS = 40

Act = Callable[[World], object]


@dataclass(frozen=True)
class Case:
    """A start state, and the call to cut. `ends` are the messages that the call itself ends."""

    name: str
    start: Act
    act: Act
    ends: str = ""
    publishes: str = ""


def groups(world: World) -> list[str]:
    return [group.name for group in world.route.groups]


# Start states. Messages a and b are what the call is about; c is a bystander.


def published(world: World, *names: str, **settings: int) -> None:
    for name in names or ("g",):
        world.subscribe(name, **settings)
    world.publish(prepared("a", "x" * 9000, digest="d"), "b", "c")


def leased(world: World, *names: str, **settings: int) -> None:
    published(world, *names, **settings)
    world.lease(2)


def failed_before(world: World, *names: str) -> None:
    leased(world, *names)
    world.fail(*(failure(id_, delay_ms=1000 + n) for n, id_ in enumerate("ab")))


def leased_again(world: World, *names: str) -> None:
    failed_before(world, *names)
    world.advance(2 * SECOND)
    world.promote()
    assert world.lease(2, prefer="retry").numbers == [(2, 2), (2, 2)]


def overdue(world: World, *names: str, **settings: int) -> None:
    leased(world, *names, **settings)
    world.advance(VISIBILITY_MS)


def overdue_again(world: World, *names: str) -> None:
    overdue(world, *names)
    world.expire()
    world.lease(2, prefer="retry")
    world.advance(VISIBILITY_MS)


def buried(world: World, *names: str) -> None:
    leased(world, *names)
    world.fail(failure("a", level=-1), failure("b", level=-1))


def scheduled(world: World, *names: str) -> None:
    for name in names:
        world.subscribe(name)
    world.publish(prepared("a", delay_ms=1), prepared("b", delay_ms=1), "c")
    world.advance(1)


def committed(world: World) -> None:
    leased(world)
    world.succeed(*first("a", "b"))
    world.advance(HOUR)


def with_backlog(world: World, *, and_ready: bool = False) -> None:
    world.publish("a", "b", "c")
    world.subscribe("g")  # takes the backlog; put back what it took
    keys = world.group()
    if and_ready:
        world.client.lmove(keys.ready, world.keys.backlog, "RIGHT", "LEFT")
        world.client.lmove(keys.ready, world.keys.backlog, "RIGHT", "LEFT")
    else:
        world.client.rename(keys.ready, world.keys.backlog)


# Calls.


def do_publish(world: World, *messages: str, delay_ms: int | str = "", digest: str = "") -> None:
    world.publish(
        *(prepared(m, delay_ms=delay_ms, digest=digest) for m in messages), seq=77, checksum="s"
    )


def settle(world: World, lease_no: int) -> list[str]:
    return world.succeed(Receipt("a", lease_no), Receipt("b", lease_no))


def fail(world: World, lease_no: int, level: int = 0) -> object:
    failures = (failure(id_, lease_no, level=level) for id_ in "ab")
    return world.fail(*failures, tracebacks={"f": "Traceback"})


def release(world: World, lease_no: int, *, postpone: bool = False) -> object:
    delays_ms: list[int | str] = [SECOND, SECOND] if postpone else ["", ""]
    receipts = (Receipt("a", lease_no), Receipt("b", lease_no))
    return world.release(*receipts, delays_ms=delays_ms, max_postpones=9)


TWO = ("g", "h")

CASES = [
    Case("publish", published, lambda w: do_publish(w, "x", "y"), publishes="xy"),
    Case(
        "publish to two groups",
        lambda w: published(w, *TWO),
        lambda w: do_publish(w, "x", "y"),
        publishes="xy",
    ),
    Case(
        "publish chosen ids",
        lambda w: published(w, *TWO),
        lambda w: do_publish(w, "x", "y", digest="d"),
        publishes="xy",
    ),
    Case("publish delayed", published, lambda w: do_publish(w, "x", delay_ms=5), publishes="x"),
    Case("publish to the backlog", lambda w: None, lambda w: do_publish(w, "x"), publishes="x"),
    Case("lease", published, lambda w: w.lease(2)),
    Case("lease from both lanes", overdue, lambda w: (w.expire(), w.lease(3, prefer="retry"))),
    Case("lease of leftovers", lambda w: (leased(w), again(w, "a")), lambda w: w.lease(2)),
    Case("renew", leased, lambda w: w.renew(*first("a", "b"), visibility_ms=HOUR)),
    Case("succeed", leased, lambda w: settle(w, 1), ends="ab"),
    Case("succeed again", leased_again, lambda w: settle(w, 2), ends="ab"),
    Case("succeed, two groups", lambda w: leased(w, *TWO), lambda w: settle(w, 1), ends="ab"),
    Case(
        "succeed again, two groups",
        lambda w: leased_again(w, *TWO),
        lambda w: settle(w, 2),
        ends="ab",
    ),
    Case("succeed as the last", lambda w: other_done(w, 1), lambda w: settle(w, 1), ends="ab"),
    Case("fail", leased, lambda w: fail(w, 1)),
    Case("fail again", leased_again, lambda w: fail(w, 2)),
    Case("fail to death", leased, lambda w: fail(w, 1, level=-1)),
    Case("fail, two groups", lambda w: leased(w, *TWO), lambda w: fail(w, 1)),
    Case(
        "fail with none left", lambda w: leased(w, max_retries=0), lambda w: fail(w, 1, level=0)
    ),
    Case("release", leased, lambda w: release(w, 1)),
    Case("release again", leased_again, lambda w: release(w, 2)),
    Case("postpone", leased, lambda w: release(w, 1, postpone=True)),
    Case("change", leased, lambda w: w.change(Receipt("a", 1), SECOND)),
    Case("change to nothing", leased, lambda w: w.change(Receipt("a", 1), 0)),
    Case("change to nothing again", leased_again, lambda w: w.change(Receipt("a", 2), 0)),
    Case("expire", overdue, lambda w: w.expire()),
    Case("expire, two groups", lambda w: overdue(w, *TWO), lambda w: w.expire()),
    Case("expire again", overdue_again, lambda w: w.expire()),
    Case("expire with none left", lambda w: overdue(w, max_retries=0), lambda w: w.expire()),
    Case("expire leftovers", lambda w: settled_in_part(w), lambda w: w.expire(), ends="a"),
    Case("promote", failed_before, lambda w: (w.advance(2 * SECOND), w.promote())),
    Case("deliver", lambda w: scheduled(w, "g"), lambda w: w.deliver()),
    Case("deliver to two groups", lambda w: scheduled(w, *TWO), lambda w: w.deliver()),
    Case("deliver to nobody", scheduled, lambda w: w.deliver()),
    Case("redrive", buried, lambda w: w.redrive("a", "b")),
    Case("redrive, two groups", lambda w: buried(w, *TWO), lambda w: w.redrive("a", "b")),
    Case("purge", buried, lambda w: w.purge("a", "b"), ends="ab"),
    Case("purge, two groups", lambda w: buried(w, *TWO), lambda w: w.purge("a", "b"), ends="ab"),
    Case("subscribe", with_backlog, lambda w: subscribe(w)),
    Case(
        "subscribe with ready messages",
        lambda w: with_backlog(w, and_ready=True),
        lambda w: subscribe(w),
    ),
    Case("configure", leased, lambda w: w.configure("g", 2, max_retries=1)),
    Case("sweep", committed, lambda w: w.sweep()),
]


def again(world: World, id_: str) -> None:
    world.client.lpush(world.group().ready, id_, id_)


def other_done(world: World, lease_no: int) -> None:
    leased(world, *TWO)
    world.lease(2, group="h")
    world.succeed(Receipt("a", lease_no), Receipt("b", lease_no), group="h")


def settled_in_part(world: World) -> None:
    overdue(world, *TWO)
    world.client.hdel(world.keys.bodies, "a")
    world.client.hset(world.keys.pending, "b", "b")


def subscribe(world: World) -> None:
    world.run(administering.subscribe(world.keys, world.route))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("repeated", [False, True], ids=["left", "repeated"])
def test_a_script_cut_anywhere_loses_nothing(
    server_of: ServerOf, case: Case, *, repeated: bool
) -> None:
    for call in range(1, MOST_CALLS):
        world = world_on(server_of, "redis-7", cut())
        case.start(world)
        before = everywhere(world)
        if not was_cut(world, case, call):
            assert call > 2, "the script made no calls that could be cut"
            return
        check_nothing_lost(world, case, before)
        if repeated:
            case.act(world)
            check_nothing_lost(world, case, before)
        if not groups(world):
            world.subscribe("g")
        check_ends(world, case, before, repeated=repeated)
    pytest.fail(f"{case.name} makes more than {MOST_CALLS} calls")


def was_cut(world: World, case: Case, call: int) -> bool:
    world.client.set(CUT_KEY, call)
    try:
        case.act(world)
    except ScriptError as error:
        assert "cut" in str(error)
        return True
    finally:
        world.client.delete(CUT_KEY)
    return False


def everywhere(world: World) -> dict[str, set[str]]:
    """For each group, the messages it has or will get."""
    state = world.state()
    return {name: held(state, name) for name in groups(world) or ["-"]}


def held(state: State, group: str) -> set[str]:
    lists = [state.get("scheduled"), state.get("backlog")]
    for place in ("ready", "retry", "inflight", "dead"):
        lists.append(state.get(f"{group}:{place}"))
    lists += [state.get(f"{group}:delay:{level}") for level in range(1, 19)]
    return {id_ for entries in lists for id_ in entries or ()}


def check_nothing_lost(world: World, case: Case, before: dict[str, set[str]]) -> None:
    state = world.state()
    bodies = set(state.get("bodies", ()))
    for group, ids in before.items():
        kept = ids - set(case.ends)
        assert kept <= held(state, group)
        assert kept <= bodies


def check_ends(
    world: World, case: Case, before: dict[str, set[str]], *, repeated: bool
) -> None:
    commits: Counter[tuple[str, str]] = Counter()
    for _ in range(MOST_ROUNDS):
        if not work_once(world, commits):
            break
        world.advance(HOUR)
    state = world.state()
    assert max(commits.values(), default=1) == 1
    for group in groups(world):
        dead = set(state.get(f"{group}:dead", ()))
        done = {id_ for (name, id_) in commits if name == group}
        assert not dead & done
        wanted = before.get(group, set()) - set(case.ends)
        if repeated:
            wanted |= set(case.publishes)
        assert wanted <= dead | done
        assert held(state, group) <= dead
    check_leftovers(state, case, repeated=repeated)


def work_once(world: World, commits: Counter[tuple[str, str]]) -> int:
    """Run every verb once for every group; everything leased succeeds."""
    world.deliver()
    moved = 0
    for group in groups(world):
        moved += world.expire(group=group).moved + world.promote(group=group).moved
        while (leased := world.lease(100, group=group)).ids or leased.left:
            lease_nos = [lease_no for lease_no, _ in leased.numbers]
            receipts = [Receipt(*pair) for pair in zip(leased.ids, lease_nos, strict=True)]
            assert set(world.succeed(*receipts, group=group)) <= {"OK"}
            commits.update((group, id_) for id_ in leased.ids)
            moved += len(leased.ids)
        moved += len(world.state().get(f"{group}:inflight", ()))
        moved += len(world.state().get(f"{group}:due", ()))
    return moved


def check_leftovers(state: State, case: Case, *, repeated: bool) -> None:
    """What stays is about dead letters; or about a publish that its caller never finished."""
    dead = {id_ for key in state if key.endswith(":dead") for id_ in state[key]}
    if not repeated:
        dead |= set(case.publishes)
    for key in ("bodies", "pending", "big", "g:attempts", "g:failures", "h:attempts", "g:graves"):
        assert set(state.get(key, ())) <= dead, key
