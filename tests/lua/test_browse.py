"""browse and reasons: pages of what waits, and the commonest errors of it; they change nothing."""

from typing import Any

from rqretry.protocol import operate
from rqretry.protocol import transaction as transactions
from rqretry.protocol.operate import BrowsedPage, FoundReasons
from tests.support.builders import SECOND, failure, prepared
from tests.support.ordering import sent
from tests.support.world import START_MS, VISIBILITY_MS, WORKER, World

RECORD = '{{"c":"failure","f":"{:016x}","t":"{}"}}'


def browse(world: World, key: str, structure: str, **options: Any) -> BrowsedPage:
    with world.changes() as changed:
        page = world.run(operate.browse(world.group(), key, structure, **options))
    assert changed == {}
    return page


def pages(world: World, key: str, structure: str, *, count: int, after: str = "") -> list[str]:
    """All ids, read in pages."""
    found, position, more = [], "", True
    while more:
        page = browse(world, key, structure, count=count, position=position, after=after)
        assert len(page.messages) <= count
        found += [message.id for message in page.messages]
        more = page.more
        if page.messages:
            position, after = repr(page.messages[-1].score), page.messages[-1].member
    return found


def reasons(world: World, most: int = 3) -> FoundReasons:
    with world.changes() as changed:
        found = world.run(operate.reasons(world.group(), most))
    assert changed == {}
    return found


def test_a_page_has_attempt_newest_failure_due_time_and_body(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a", record=RECORD.format(1, "KeyError")))
    (waits,) = browse(world, world.group().levels[2], "zset").messages
    assert (waits.id, waits.attempt, waits.score) == ("a", 2, START_MS + 10 * SECOND)
    assert waits.failure == f"1 {START_MS}+10000 {RECORD.format(1, 'KeyError')}"
    assert waits.body == b"body of a"
    (held,) = browse(world, world.group().inflight, "zset").messages
    assert (held.id, held.attempt, held.failure) == ("b", 1, "")
    assert held.score == START_MS + VISIBILITY_MS


def test_pages_of_a_sorted_set_go_on_behind_a_message_that_is_gone(world: World) -> None:
    world.subscribe()
    world.leased(*"abcdef")
    inflight = world.group().inflight
    assert pages(world, inflight, "zset", count=2) == [*"abcdef"]
    first = browse(world, inflight, "zset", count=2).messages[-1]
    world.client.zrem(inflight, "a", "b")
    rest = browse(
        world, inflight, "zset", count=2, position=repr(first.score), after=first.member
    ).messages
    assert [message.id for message in rest] == ["c", "d"]
    world.damaged = True


def test_pages_of_a_list_skip_nothing_while_its_head_is_leased(world: World) -> None:
    world.subscribe()
    world.publish(*"abcdef")
    ready = world.group().ready
    assert pages(world, ready, "list", count=2) == [*"abcdef"]
    last = browse(world, ready, "list", count=2).messages[-1]
    where = {"position": repr(last.score), "after": last.member}
    world.lease(1)
    assert [m.id for m in browse(world, ready, "list", count=2, **where).messages] == ["c", "d"]
    world.lease(2)  # the end of the page before is gone, so all before it are
    assert [m.id for m in browse(world, ready, "list", count=2, **where).messages] == ["d", "e"]


def test_pages_of_scheduled_messages_have_their_tags_behind(world: World) -> None:
    world.subscribe()
    world.publish(
        *(prepared(i, delay_ms=SECOND, tag="T") for i in "abc"), prepared("d", delay_ms=2)
    )
    assert pages(world, world.keys.scheduled, "zset", count=1) == ["d", "a", "b", "c"]


def test_what_waits_in_order_names_who_is_out(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc", "x"), *sent("de", "y"))
    order = world.group().order
    assert pages(world, order, "order", count=2) == [*"abcde"]
    found = {m.id: m.head for m in browse(world, order, "order").messages}
    assert found == {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}


def test_pages_of_halves_are_of_one_transaction(world: World) -> None:
    world.subscribe()
    for name, ids in (("tx", "abc"), ("ty", "d")):
        halves = [transactions.Half(n, prepared(i), "", "") for n, i in enumerate(ids, 1)]
        command = transactions.prepare(
            world.keys, world.route, name, halves, worker=WORKER, seen_ms=world.now
        )
        world.run(command)
    assert pages(world, world.keys.halves, "halves", count=2, after="tx ") == [*"abc"]
    world.damaged = True  # nobody knows the transactions


def test_a_page_ends_before_too_many_bytes(world: World) -> None:
    world.subscribe()
    world.publish(*(prepared(i, "x" * 600_000) for i in "abc"))
    page = browse(world, world.group().ready, "list")
    assert (page.more, [m.id for m in page.messages]) == (True, ["a"])
    assert pages(world, world.group().ready, "list", count=500) == [*"abc"]


def test_the_commonest_reasons_are_counted_over_levels_and_retries(world: World) -> None:
    world.subscribe()
    assert reasons(world) == FoundReasons(0, 0, [])
    world.leased(*"abcdef", "new")
    for ids, kind in (("abc", 1), ("de", 2), ("f", 3)):
        record = RECORD.format(kind, f"Error{kind}")
        world.fail(*(failure(i, record=record, level=kind) for i in ids))
    world.advance(SECOND)
    world.promote()
    found = reasons(world, 2)
    assert (found.waiting, found.looked) == (6, 6)
    assert [(count, id_) for count, id_, _ in found.kinds] == [(3, "a"), (2, "d")]
    assert found.kinds[0][2] == f"1 {START_MS}+1000 {RECORD.format(1, 'Error1')}"


def test_reasons_that_are_as_common_come_in_the_order_of_ids(world: World) -> None:
    world.subscribe()
    world.leased(*"dcba")
    for level, id_ in enumerate("dcba", 1):
        world.fail(failure(id_, record=RECORD.format(level, "Error"), level=level))
    assert [id_ for _, id_, _ in reasons(world).kinds] == ["a", "b", "c"]


def test_of_very_many_each_level_has_its_share(world: World) -> None:
    """Those of one kind in front do not hide the few that failed more often."""
    world.subscribe()
    for at in range(0, 700, 100):
        world.leased(*(f"m{n}" for n in range(at, at + 100)))
    many, few = RECORD.format(1, "Many"), RECORD.format(2, "Few")
    for at in range(0, 690, 230):
        world.fail(*(failure(f"m{n}", record=many, level=3) for n in range(at, at + 230)))
    world.fail(*(failure(f"m{n}", record=few, level=18) for n in range(690, 700)))
    found = reasons(world)
    assert (found.waiting, found.looked) == (700, 500)
    assert [count for count, _, _ in found.kinds] == [490, 10]
