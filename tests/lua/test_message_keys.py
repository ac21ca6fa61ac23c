"""The index of message keys: there while the message is stored, gone with its body."""

from collections.abc import Callable

import pytest

from rqretry.core.history_notes import Noted
from rqretry.protocol import inspect, operate, transaction
from rqretry.protocol.transaction import Half
from tests.support.builders import HOUR, SECOND, failure, first, prepared
from tests.support.world import START_MS, World

KEYED = {"keyed": {"a": "k l"}, "message_keys": {"k\0a": 0, "l\0a": 0}}
GONE = {"keyed": {"a": None}, "message_keys": {"k\0a": None, "l\0a": None}}


def index(world: World) -> dict[str, object]:
    """What there is of message keys."""
    state = world.state()
    return {name: state[name] for name in KEYED if name in state}


def with_keys(world: World, id_: str = "a", *keys: str, **options: object) -> None:
    message = prepared(id_, keys=keys or ("k", "l"), **options)  # type: ignore[arg-type]
    assert world.publish(message).status == "OK"


def found(world: World, key: str) -> list[str]:
    return world.run(inspect.ids_with_key(world.keys, key, after="", count=100))


def test_a_message_with_keys_is_indexed_and_others_cost_nothing(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        world.publish(prepared("a", keys=("k", "l")), "b")
    assert changed == {
        "bodies": {"a": "body of a", "b": "body of b"},
        **KEYED,
        "g:ready": ["a", "b"],
        "g:wake": {"1": 0},
        "lane:p": "1 sum",
        "counters": {"publish:g": 2},
        "events": ["publish  p a b"],
    }
    with world.changes() as changed:
        world.publish("c", prepared("d", tag="x"), prepared("e", group="y"))
    assert not changed.keys() & KEYED.keys()


def test_messages_are_found_by_the_very_key_page_by_page(world: World) -> None:
    world.subscribe()
    ids = [f"m{number:02}" for number in range(25)]
    world.publish(*(prepared(id_, keys=("k",)) for id_ in ids))
    with_keys(world, "x", "kk", "\u00e9", "k!")
    pages, after = list[list[str]](), ""
    while page := world.run(inspect.ids_with_key(world.keys, "k", after=after, count=10)):
        pages.append(page)
        after = page[-1]
    assert pages == [ids[:10], ids[10:20], ids[20:]]
    assert [found(world, key) for key in ("kk", "\u00e9", "k!", "x", "")] == [["x"]] * 3 + [[]] * 2


def test_publishing_the_same_again_indexes_nothing(world: World) -> None:
    world.subscribe()
    with_keys(world, digest="d")
    with world.changes() as changed:
        assert world.publish(prepared("a", digest="d", keys=("k", "l"))).verdicts == "D"
        assert world.publish(prepared("a", digest="e", keys=("other",))).verdicts == "C"
    assert not changed.keys() & KEYED.keys()


def test_what_nobody_wants_is_not_stored_and_not_indexed(world: World) -> None:
    world.subscribe(tags="x")
    with_keys(world, tag="y")
    assert index(world) == {}


def test_very_many_keys_are_noted_in_one_call_and_forgotten_in_bounded_ones(world: World) -> None:
    world.subscribe()
    ids = [f"m{number:03}" for number in range(500)]
    keys = tuple(f"k{number}" for number in range(16))
    world.publish(*(prepared(id_, keys=keys) for id_ in ids))
    assert len(world.state()["message_keys"]) == 8000
    world.lease(500)
    verdicts = world.succeed(*first(*ids))
    assert (verdicts.count("OK"), verdicts.count("LATER")) == (75, 425)
    for start in range(75, 500, 75):
        assert set(world.succeed(*first(*ids[start : start + 75]))) == {"OK"}
    assert index(world) == {}


def succeed(world: World) -> None:
    world.succeed(*first("a"))


def fail_and_purge(world: World) -> None:
    world.fail(failure("a", level=-1))
    assert found(world, "l") == ["a"], "a dead letter is found by its keys"
    world.purge("a")


def release_and_drop(world: World) -> None:
    world.release(*first("a"))
    world.drop(limit=1)


@pytest.mark.parametrize("end", [succeed, fail_and_purge, release_and_drop])
def test_whatever_ends_a_message_forgets_its_keys(
    world: World, end: Callable[[World], None]
) -> None:
    world.subscribe()
    with_keys(world)
    with_keys(world, "b", "k")
    world.lease(1)
    end(world)
    assert index(world) == {"keyed": {"b": "k"}, "message_keys": {"k\0b": 0}}
    assert (found(world, "k"), found(world, "l")) == (["b"], [])


def test_the_keys_go_with_the_last_group(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    with_keys(world)
    world.lease(group="g")
    world.lease(group="h")
    with world.changes() as changed:
        world.succeed(*first("a"), group="h")
    assert not changed.keys() & KEYED.keys()
    with world.changes() as changed:
        world.succeed(*first("a"))
    assert {name: changed[name] for name in GONE} == GONE


def test_a_delayed_message_is_found_and_a_recalled_one_is_not(world: World) -> None:
    world.subscribe()
    with_keys(world, delay_ms=SECOND)
    assert found(world, "k") == ["a"]
    assert world.recall("a") == "OK"
    assert index(world) == {}


def test_a_delayed_message_that_nobody_wants_is_forgotten_with_its_keys(world: World) -> None:
    world.subscribe(tags="x")
    with_keys(world, tag="y", delay_ms=SECOND)
    assert index(world) == KEYED
    world.advance(SECOND)
    world.deliver()
    assert index(world) == {}


def test_messages_that_are_cleared_out_of_a_line_lose_their_keys(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(prepared("head", group="x"), prepared("a", group="x", keys=("k", "l")))
    page = world.run(operate.scan_blocked(world.group()))
    assert world.run(operate.purge_blocked(world.group(), page.members, actor="ops")) == [b"OK"]
    assert index(world) == {}


def prepare(world: World) -> None:
    message = prepared("a", keys=("k", "l"))
    half = Half(1, message, "", "")
    for _ in range(2):
        answer = world.run(
            transaction.prepare(
                world.keys, world.route, "tx", [half], worker="w1", seen_ms=world.now
            )
        )
        assert answer.verdicts == "A"


def test_a_half_is_found_by_its_keys_until_it_is_rolled_back(world: World) -> None:
    world.damaged = True  # the transaction has no record here
    world.subscribe()
    with world.changes() as changed:
        prepare(world)
    assert {name: changed[name] for name in KEYED} == KEYED
    assert world.run(transaction.rollback(world.keys, "tx", worker="w1")) == (1, 0)
    assert index(world) == {}


def test_a_half_that_is_committed_keeps_its_keys_until_it_ends(world: World) -> None:
    world.subscribe()
    prepare(world)
    world.run(transaction.commit(world.keys, "tx", worker="w1", decided_ms=START_MS))
    world.deliver()
    assert index(world) == KEYED
    world.lease()
    world.succeed(*first("a"))
    assert index(world) == {}
    world.advance(HOUR)


def test_only_messages_with_keys_are_sent_with_arguments_for_them() -> None:
    plain = prepared("a")
    assert plain.keys == ""
    assert plain._replace(noted=Noted("x")).keys == ""
    assert plain._replace(noted=Noted(None, ("k", "l"))).keys == "k l"
