"""Every writing script, cut at every Redis command it makes.

Redis keeps what a script wrote before its error, so these are all the partial outcomes there are.
After the cut nothing may be lost; then the verbs run on, and every message must end committed or
dead, once for each group. A lease number skipped and an attempt counted too many are accepted.
"""

from collections import Counter

import pytest

from rqretry.checks.auditor import ERROR
from rqretry.checks.snapshot import in_order
from rqretry.core.errors import AmbiguousResult, ScriptError
from rqretry.core.receipt import Receipt
from rqretry.protocol.publish import id_of_member
from rqretry.protocol.scripts import ScriptLibrary
from tests.conftest import ServerOf
from tests.lua.conftest import cut, cut_writes, world_on
from tests.lua.crash_cases import CASES, Case, subscribe
from tests.lua.crash_cases_kept import KEPT
from tests.lua.crash_cases_ordered import ORDERED
from tests.lua.crash_cases_repair import REPAIRS
from tests.support.builders import HOUR
from tests.support.lua_hooks import CUT_KEY
from tests.support.world import State, World

MOST_CALLS = 60
MOST_ROUNDS = 40


def groups(world: World) -> list[str]:
    return [group.name for group in world.route.groups]


@pytest.mark.parametrize("case", [*CASES, *ORDERED, *KEPT], ids=lambda case: case.name)
@pytest.mark.parametrize("repeated", [False, True], ids=["left", "repeated"])
def test_a_script_cut_anywhere_loses_nothing(
    server_of: ServerOf, case: Case, *, repeated: bool
) -> None:
    cut_everywhere(server_of, case, cut(), repeated=repeated)


@pytest.mark.parametrize("case", REPAIRS, ids=lambda case: case.name)
@pytest.mark.parametrize("repeated", [False, True], ids=["left", "repeated"])
def test_a_repair_cut_at_any_write_loses_nothing_and_the_next_one_completes_it(
    server_of: ServerOf, case: Case, *, repeated: bool
) -> None:
    cut_everywhere(server_of, case, cut_writes(), repeated=repeated)


def cut_everywhere(
    server_of: ServerOf, case: Case, library: ScriptLibrary, *, repeated: bool
) -> None:
    """Cut the case at one call after another, and check each time."""
    for call in range(1, MOST_CALLS):
        world = world_on(server_of, "redis-7", library)
        case.start(world)
        before = everywhere(world)
        if not was_cut(world, case, call):
            assert call > 1, "the script made no calls that could be cut"
            return
        check_nothing_lost(world, case, before)
        case.meanwhile(world)
        check_nothing_lost(world, case, before)
        if repeated:
            case.act(world)
            check_nothing_lost(world, case, before)
        if not groups(world):
            world.subscribe("g")
        case.after(world)
        check_ends(world, case, before, repeated=repeated)
    pytest.fail(f"{case.name} makes more than {MOST_CALLS} calls")


def was_cut(world: World, case: Case, call: int) -> bool:
    world.client.set(CUT_KEY, call)
    try:
        case.act(world)
    except (ScriptError, AmbiguousResult) as error:
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
    own = ["ready", "retry", "inflight", "dead", *(f"delay:{level}" for level in range(1, 19))]
    places = ["scheduled", "backlog", *(f"{group}:{place}" for place in own)]
    listed = {id_of_member(member) for place in places for member in state.get(place, ())}
    return listed | {in_order(member)[1] for member in state.get(f"{group}:line", ())}


def check_nothing_lost(world: World, case: Case, before: dict[str, set[str]]) -> None:
    state = world.state()
    bodies = set(state.get("bodies", ()))
    for group, ids in before.items():
        kept = ids - ended_by(case, group)
        assert kept <= held(state, group)
        assert kept <= bodies


def ended_by(case: Case, group: str) -> set[str]:
    return set(case.ends if group == "g" else case.ends_for_others)


def check_ends(world: World, case: Case, before: dict[str, set[str]], *, repeated: bool) -> None:
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
        wanted = before.get(group, set()) - ended_by(case, group)
        if repeated:
            others = case.publishes if case.for_others is None else case.for_others
            wanted |= set(case.publishes if group == "g" else others)
        assert wanted <= dead | done
        begun = set() if repeated else set(case.publishes)
        assert held(state, group) <= dead | begun
    check_leftovers(state, case, repeated=repeated)
    if repeated:
        assert [finding for finding in world.findings() if finding.severity == ERROR] == []


def work_once(world: World, commits: Counter[tuple[str, str]]) -> bool:
    """Run every verb for every group; what is leased succeeds. Is there something to wait for?"""
    world.deliver()
    subscribe(world)
    to_do = False
    for group in groups(world):
        world.expire(group=group)
        world.promote(group=group)
        while (leased := world.lease(100, group=group)).ids or leased.left:
            lease_nos = [lease_no for lease_no, _ in leased.numbers]
            receipts = [Receipt(*pair) for pair in zip(leased.ids, lease_nos, strict=True)]
            if receipts:
                assert set(world.succeed(*receipts, group=group)) == {"OK"}
            commits.update((group, id_) for id_ in leased.ids)
        to_do = to_do or any(when is not None for when in leased[1:4])
    return to_do


def check_leftovers(state: State, case: Case, *, repeated: bool) -> None:
    """What stays is about dead letters; or about a publish that its caller never finished."""
    dead = {id_ for key in state if key.endswith(":dead") for id_ in state[key]}
    if not repeated:
        dead |= set(case.publishes) | set(case.leaves)
    for key in ("bodies", "pending", "big", "g:attempts", "g:failures", "h:attempts", "h:failures"):
        assert set(state.get(key, ())) <= dead, key
    assert set(state.get("keyed", ())) <= dead
    assert {member.partition("\0")[2] for member in state.get("message_keys", ())} <= dead
    assert set(state.get("message_groups", ())) <= dead
    for group in "gh":
        assert {in_order(member)[1] for member in state.get(f"{group}:line", ())} <= dead
        assert set(state.get(f"{group}:heads", {}).values()) <= dead
