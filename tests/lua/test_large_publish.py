"""Large bodies, which are stored in front of the script that publishes them, and adopted by it."""

from dataclasses import replace
from typing import Any

import pytest

from rqretry.protocol import transaction
from rqretry.protocol.large_body import LARGE
from rqretry.protocol.operate import backfill_check
from rqretry.protocol.publish import Prepared, publish
from rqretry.protocol.transaction import Half, PreparedHalves
from tests.support.builders import SECOND, first, prepared
from tests.support.world import World

BODY, OTHER = "x" * (LARGE + 1), "y" * (LARGE + 9)


def leave_behind(world: World, id_: str, body: str) -> None:
    """As a call that did not come to its script, which the server forgot; then the client died."""
    for one in publish(
        world.keys, world.route, [prepared(id_, body)],
        producer="gone", seq=1, checksum="s", lane_ttl_ms=SECOND,
    ).ahead:  # fmt: skip
        world.client.execute_command(*one)


def large(world: World, id_: str = "a", **options: Any) -> Prepared:
    """A message with a large body, which a group is subscribed to."""
    if not world.route.groups:
        world.subscribe()
    return prepared(id_, BODY, **options)


def test_a_large_body_does_not_pass_through_the_script_that_publishes_it(world: World) -> None:
    message = large(world)
    call = publish(
        world.keys, world.route, [message, prepared("b", "x" * LARGE)],
        producer="p", seq=1, checksum="s", lane_ttl_ms=3600 * SECOND,
    )  # fmt: skip
    assert [len(str(one[-1])) for one in call.ahead] == [16, len(repr(BODY.encode()))]
    assert max(len(arg) for arg in call.args if isinstance(arg, str | bytes)) == LARGE
    with world.changes() as changed:
        assert world.run(call).status == "OK"
    assert changed == {
        "bodies": {"a": BODY, "b": "x" * LARGE},
        "big": {"a": str(LARGE + 1), "b": str(LARGE)},
        "g:ready": ["a", "b"],
        "g:wake": {"1": 0},
        "lane:p": "1 s",
        "counters": {"publish:g": 2},
        "events": ["publish  p a b"],
    }


def test_large_bodies_have_all_options_that_small_ones_have(world: World) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h", tags="red")
    world.publish(
        large(world, "a", tag="red", group="n", digest="d"),
        large(world, "b", tag="blue"),
        large(world, "late", delay_ms=SECOND),
        prepared("small", tag="red", group="n"),
    )
    state = world.state()
    assert set(state["bodies"]) == set(state["big"]) | {"small"} == {"a", "b", "late", "small"}
    assert (state["g:ready"], state["h:ready"]) == (["a", "b"], ["a", "small"])
    assert "incoming" not in state
    world.advance(2 * SECOND)
    assert world.deliver()[1] == 1
    leased = world.lease(9)
    assert (leased.ids, leased.data) == (["a", "b"], [b"", b""])
    assert world.succeed(*first("a", "b")) == ["OK", "OK"]
    assert world.lease(9).ids == ["small", "late"]


def test_a_call_that_is_refused_leaves_no_body_behind(world: World) -> None:
    message, old = large(world), world.route
    world.subscribe("h")
    with world.changes() as changed:
        assert world.publish(message, route=old, seq=1).status == "STALE_ROUTE"
    assert changed == {}
    world.publish("small", seq=2)
    with world.changes() as changed:
        assert world.publish(message, seq=1).status == "LANE_CONFLICT"
        world.client.hset(world.keys.meta, "most", 1)
        assert world.publish(message, "b", seq=3) == ("FULL", 0, "", None, 1, 1, "")
    assert changed == {"route": {"limit": "1"}}
    world.client.hset(world.keys.meta, "most", 2)
    assert world.publish(message, seq=4).status == "OK"
    world.client.hdel(world.keys.meta, "most")


def test_a_call_that_is_repeated_when_its_message_is_gone_leaves_no_body_behind(
    world: World,
) -> None:
    message = large(world)
    world.publish(message, seq=1)
    with world.changes() as changed:
        assert world.publish(message, seq=1).status == "DUPLICATE"
    assert changed == {}
    world.lease()
    world.succeed(*first("a"))
    with world.changes() as changed:
        assert world.publish(message, seq=1).status == "DUPLICATE"
    assert changed == {}


def test_no_body_changes_under_its_id(world: World) -> None:
    world.publish(
        large(world, digest="d"), prepared("small", "s", digest="d"), large(world, "made")
    )
    with world.changes() as changed:
        verdicts = world.publish(
            prepared("a", OTHER, digest="e"),
            prepared("a", BODY, digest="d"),
            prepared("small", OTHER, digest="e"),
            prepared("made", BODY, digest="d"),
        ).verdicts
    assert verdicts == "CDCD"
    assert set(changed) == {"lane:p"}


@pytest.mark.parametrize("body", [OTHER, BODY], ids=["other", "same"])
def test_a_body_that_was_left_behind_is_not_taken_for_that_of_another_call(
    world: World, body: str
) -> None:
    message = large(world, digest="d")
    leave_behind(world, "a", body)
    published = world.publish(message)
    if body is OTHER:
        assert published.status == "AGAIN"
        assert {"bodies", "incoming", "ids"}.isdisjoint(world.state())
        published = world.publish(message)
    assert (published.status, world.state()["bodies"]) == ("OK", {"a": BODY})
    assert "incoming" not in world.state()


def test_what_was_left_behind_is_no_message_and_is_deleted_and_counted(world: World) -> None:
    world.publish(large(world))
    leave_behind(world, "a", BODY)
    leave_behind(world, "left", OTHER)
    world.subscribe("h", catching_up=1)
    assert world.run(backfill_check(world.group("h"), "0"))[1] == ["a"]
    assert [(d.kind, d.id) for d in world.findings() if d.kind != "not delivered"] == [
        ("unadopted body", "left")
    ]
    with world.changes() as changed:
        world.sweep()
    assert changed["bodies"] == {"left": None}
    assert changed["incoming"] == {"a": None, "left": None}
    assert changed["counters"] == {"unadopted": 1}
    assert world.findings() == []


def cut_behind_its_body(world: World, body: str) -> None:
    """What a call leaves that was cut when it had stored the body of `a` and remembered its id."""
    world.damage().hset(world.keys.ids, "a", "?e")
    world.client.hset(world.keys.bodies, "a", body)
    if body is BODY:
        world.client.hset(world.keys.big, "a", len(body))


@pytest.mark.parametrize("body", [BODY, "small"], ids=["large", "small"])
def test_a_call_that_was_cut_does_not_keep_the_body_of_an_id_that_is_free(
    world: World, body: str
) -> None:
    message = large(world, digest="d")
    cut_behind_its_body(world, body)
    assert [world.publish(message).status for _ in range(2)] == ["AGAIN", "OK"]
    assert world.state()["bodies"] == {"a": BODY}


def test_a_call_goes_on_where_it_was_cut(world: World) -> None:
    message = large(world)
    world.damage().hset(world.keys.bodies, "a", BODY)
    world.client.hset(world.keys.big, "a", len(BODY))
    assert world.publish(message).status == "OK"
    assert world.state()["bodies"] == {"a": BODY}


def test_there_is_no_message_without_the_body_that_was_to_be_stored_in_front(world: World) -> None:
    message = large(world)
    command = publish(
        world.keys, world.route, [message],
        producer="p", seq=1, checksum="s", lane_ttl_ms=SECOND,
    )  # fmt: skip
    with world.changes() as changed:
        assert world.run(replace(command, ahead=())).status == "AGAIN"
    assert changed == {}


def test_a_sweep_of_what_was_left_behind_is_bounded_and_says_whether_there_is_more(
    world: World,
) -> None:
    world.subscribe()
    for id_ in "ab":
        leave_behind(world, id_, OTHER)
    assert [world.sweep(limit=1) for _ in range(2)] == [(1, 0, ()), (1, None, ())]


def prepare(world: World, *messages: Prepared, tx: str = "tx") -> PreparedHalves:
    """Prepare halves."""
    halves = [Half(number, message, "", "") for number, message in enumerate(messages, start=1)]
    return world.run(
        transaction.prepare(world.keys, world.route, tx, halves, worker="w1", seen_ms=world.now)
    )


def test_halves_with_large_bodies(world: World) -> None:
    world.damaged = True  # halves have no records here, which the auditor rightly finds
    message, small = large(world, digest="d"), prepared("b", "small")
    with world.changes() as changed:
        assert prepare(world, message, small).verdicts == "AA"
    assert changed["bodies"] == {"a": BODY, "b": "small"}
    assert changed["big"] == {"a": str(len(BODY))}
    assert "incoming" not in changed
    with world.changes() as changed:
        assert prepare(world, message, small).verdicts == "AA"
        assert prepare(world, prepared("a", OTHER, digest="e"), tx="other").verdicts == "H"
    assert {"bodies", "big", "incoming"}.isdisjoint(changed)
    leave_behind(world, "c", OTHER)
    half = large(world, "c", digest="d")
    assert [prepare(world, half, tx="third").status for _ in range(2)] == ["AGAIN", "OK"]
    assert world.state()["bodies"]["c"] == BODY


@pytest.mark.parametrize("body", [BODY, "small"], ids=["large", "small"])
def test_a_half_that_was_cut_before_it_was_noted_does_not_keep_its_body(
    world: World, body: str
) -> None:
    half = large(world, digest="d")
    cut_behind_its_body(world, body)
    assert [prepare(world, half).status for _ in range(2)] == ["AGAIN", "OK"]
    assert world.state()["bodies"] == {"a": BODY}


def test_a_half_with_an_id_of_the_client_s_goes_on_where_it_was_cut(world: World) -> None:
    half = large(world)
    world.damage().hset(world.keys.bodies, "a", BODY)
    world.client.hset(world.keys.big, "a", len(BODY))
    assert prepare(world, half).verdicts == "A"
    assert world.state()["bodies"] == {"a": BODY}
