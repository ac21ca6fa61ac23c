"""Dead letters by fingerprint: counted and found without reading them, whatever way in and out."""

from collections.abc import Callable, Iterator

import pytest

from rqretry.core.failure_record import fingerprint_of_text
from rqretry.protocol import inspect
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.inspect import DeadCluster
from tests.support.builders import SECOND, failure
from tests.support.repairing import repair_now
from tests.support.world import START_MS, World

EXPIRED = fingerprint_of_text("expired", "")


def record_of(fingerprint: str) -> str:
    return f'{{"c":"failure","t":"KeyError","f":"{fingerprint}"}}'


def die(world: World, fingerprint: str, *ids: str) -> None:
    world.leased(*ids)
    world.fail(*(failure(id_, level=-1, record=record_of(fingerprint)) for id_ in ids))


def counted(world: World) -> dict[str, int]:
    return {each.fingerprint: each.size for each in clusters(world)}


def clusters(world: World) -> list[DeadCluster]:
    return list(pages(world))


def pages(world: World) -> Iterator[DeadCluster]:
    after = None
    while page := world.run(inspect.dead_clusters(world.group(), after=after)):
        yield from page
        after = page[-1].fingerprint


def page(world: World, **options: object) -> list[str]:
    return world.run(inspect.dead_letters(world.group(), **options)).ids  # type: ignore[arg-type]


def test_a_cluster_says_how_many_there_are_since_when_and_what_the_newest_is(world: World) -> None:
    world.subscribe()
    die(world, "0f", "c")
    world.advance(SECOND)
    die(world, "0f", "a", "b")
    die(world, "aa", "d")
    first, second = clusters(world)
    assert first[:5] == ("0f", 3, START_MS, START_MS + SECOND, "b")
    assert (first.death, first.failures) == ("1 failure 0f", f"1 1001000 {record_of('0f')}\n")
    assert second[:5] == ("aa", 1, START_MS + SECOND, START_MS + SECOND, "d")


def test_there_may_be_more_fingerprints_than_a_page_has(world: World) -> None:
    world.subscribe()
    names = [f"{n:04x}" for n in range(MAX_BATCH + 2)]
    members = {f"{name}\0{1:016}\0x": 0 for name in names}
    world.damage().zadd(world.group().fingerprints, members)
    assert counted(world) == dict.fromkeys(names, 1)


def test_what_expires_is_counted_by_the_fingerprint_that_python_gives_it(world: World) -> None:
    world.subscribe(max_retries=0)
    world.leased("a")
    world.advance(60 * SECOND)
    world.expire()
    assert counted(world) == {EXPIRED: 1}


def overdue(world: World) -> None:
    """What a fail that was cut behind `dead` leaves: dead, in flight, and not counted."""
    world.leased("e")
    world.client.hset(world.group().deaths, "e", "1 failure 0f")
    world.client.zadd(world.group().dead, {"e": START_MS})
    world.advance(60 * SECOND)
    world.expire()


def killed_again(world: World) -> None:
    """A fail that was cut, and repeated later: the message died once."""
    world.leased("e")
    world.client.hset(world.group().deaths, "e", "1 failure 0f")
    world.client.zadd(world.group().dead, {"e": START_MS - 5})
    world.client.zadd(world.group().fingerprints, {f"0f\0{START_MS - 5:016}\0e": 0})
    world.fail(failure("e", level=-1, record=record_of("0f")))


WAYS: dict[str, tuple[Callable[[World], object], dict[str, int]]] = {
    "redrive": (lambda w: w.redrive("a", "unknown"), {"0f": 1, "aa": 1}),
    "purge": (lambda w: w.purge("a", "b"), {"aa": 1}),
    "a redrive, and death of another error": (
        lambda w: (w.redrive("a"), die_again(w, "aa", "a")),
        {"0f": 1, "aa": 2},
    ),
    "expire behind a cut": (overdue, {"0f": 3, "aa": 1}),
    "fail behind a cut": (killed_again, {"0f": 3, "aa": 1}),
    "repair of what has no body": (
        lambda w: (w.damage().hdel(w.keys.bodies, "a"), repair_now(w, "lost", "a")),
        {"0f": 1, "aa": 1},
    ),
    "repair of what has no cause": (
        lambda w: (w.damage().delete(w.group().deaths), w.damage().delete(w.group().fingerprints),
                   repair_now(w, "cause", "a", "b", "c")),
        {"": 3},
    ),
    "repair of the counts": (
        lambda w: (w.damage().delete(w.group().fingerprints),
                   w.client.zadd(w.group().fingerprints, {"bb\x0012\0a": 0}),
                   repair_now(w, "clusters", "bb\x0012\0a", f"0f\0{START_MS:016}\0a",
                        f"0f\0{START_MS:016}\0b", f"aa\0{START_MS:016}\0c")),
        {"0f": 2, "aa": 1},
    ),
}  # fmt: skip


def die_again(world: World, fingerprint: str, id_: str) -> object:
    world.lease()
    return world.fail(failure(id_, 3, level=-1, record=record_of(fingerprint)))


@pytest.mark.parametrize("way", WAYS)
def test_the_counts_are_exact_behind(world: World, way: str) -> None:
    world.subscribe()
    die(world, "0f", "a", "b")
    die(world, "aa", "c")
    act, expected = WAYS[way]
    act(world)
    assert counted(world) == expected


def test_pages_go_on_behind_what_is_gone(world: World) -> None:
    world.subscribe()
    ids = [f"{n:02}" for n in range(40)]
    die(world, "0f", *ids)
    found, after = [], (0, "")
    while some := page(world, count=7, after=after):
        world.purge(*some[::2])
        found += some
        after = (START_MS, some[-1])
    assert found == ids


def test_ids_and_fingerprints_are_found_without_reading_the_others(world: World) -> None:
    world.subscribe()
    die(world, "0f", "a", "Z", "b")
    die(world, "aa", "c")
    world.advance(SECOND)
    die(world, "0f", "d")
    assert page(world, ids=["d", "unknown", "a"]) == ["d", "a"]
    assert page(world, fingerprint="0f") == ["Z", "a", "b", "d"]
    assert page(world, fingerprint="0f", after=(START_MS, "a"), count=1) == ["b"]
    assert page(world, fingerprint="0f", upto_ms=START_MS) == ["Z", "a", "b"]
    assert page(world, after=(START_MS, "Z")) == ["a", "b", "c", "d"]
    assert page(world, after=(START_MS + 1, "")) == ["d"]
    assert page(world, upto_ms=START_MS - 1) == []
    assert page(world, ids=["d", "a"], upto_ms=START_MS) == ["a"]


def test_a_group_that_leaves_takes_its_counts_with_it(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.damage().zadd(world.group().fingerprints, {"0f\0000\0a": 0})
    assert world.leave("g") == 0
    assert "g:fingerprints" not in world.state()
