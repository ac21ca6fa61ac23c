"""publish: nothing -> ready of every group of the topic, or -> scheduled, or -> backlog."""

from dataclasses import replace

import pytest

from rqretry.core.message_id import make_ids, pack_ids
from rqretry.core.route import Route
from rqretry.protocol import catalog, history, inspect
from rqretry.protocol.publish import Front
from tests.support.builders import HOUR, SECOND, prepared
from tests.support.world import START_MS, World


def test_publish_stores_the_body_once_and_makes_the_message_ready(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        published = world.publish("a", "b")
    assert (published.status, published.now_ms, published.verdicts) == ("OK", START_MS, "")
    assert changed == {
        "bodies": {"a": "body of a", "b": "body of b"},
        "g:ready": ["a", "b"],
        "g:wake": {"1": 0},
        "lane:p": "1 sum",
        "counters": {"publish:g": 2},
        "events": ["publish  p a b"],
    }


def test_publish_of_many_plain_messages_notes_their_ids_packed(world: World) -> None:
    world.subscribe()
    few, many = make_ids(31, START_MS), make_ids(32, START_MS)

    world.publish(*few)
    world.publish(*many)

    entries = world.client.xrange(world.keys.events)
    assert [(fields[b"i"], fields[b"b"]) for _, fields in entries] == [
        (" ".join(few).encode(), b""),
        (b"", pack_ids(many)),
    ]
    stated = world.run(inspect.history(world.keys, start="-"))
    assert [fields["i"].decode().split(" ") for _, fields in stated] == [few, many]
    assert {fields["b"] for _, fields in stated} == {b""}
    raw = world.run(history.entries(world.keys, start="-", end="+", count=10))
    assert [
        dict(zip(flat[::2], flat[1::2], strict=True))[b"i"].decode().split(" ") for _, flat in raw
    ] == [
        few,
        many,
    ]


def test_publish_before_any_group_exists_goes_to_the_backlog(world: World) -> None:
    with world.changes() as changed:
        world.publish("a", "b")
    assert changed == {
        "bodies": {"a": "body of a", "b": "body of b"},
        "backlog": ["a", "b"],
        "lane:p": "1 sum",
        "events": ["publish  p a b"],
    }


def test_publish_to_several_groups_notes_who_still_owes_the_message(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    with world.changes() as changed:
        world.publish("a")
    assert changed == {
        "bodies": {"a": "body of a"},
        "pending": {"a": "ab"},
        "g:ready": ["a"],
        "g:wake": {"1": 0},
        "h:ready": ["a"],
        "h:wake": {"1": 0},
        "lane:p": "1 sum",
        "counters": {"publish:g": 1, "publish:h": 1},
        "events": ["publish  p a"],
    }


def test_publish_wakes_only_where_the_ready_list_was_empty(world: World) -> None:
    world.subscribe("g")
    world.publish("a")
    world.subscribe("h")
    with world.changes() as changed:
        world.publish("b")
    assert (changed["g:ready"], changed["h:ready"]) == (["a", "b"], ["b"])
    assert "g:wake" not in changed
    assert changed["h:wake"] == {"1": 0}


def test_publish_repeated_is_answered_as_before_and_changes_nothing(world: World) -> None:
    world.subscribe()
    world.publish("a", seq=7, checksum="s")
    world.advance(SECOND)
    with world.changes() as changed:
        published = world.publish("a", seq=7, checksum="s")
    assert (published.status, published.verdicts) == ("DUPLICATE", "")
    assert changed == {}


def test_publish_repeated_finds_its_answer_even_after_the_route_has_changed(world: World) -> None:
    world.subscribe("g")
    known = world.route
    world.publish("a", seq=7)
    world.subscribe("h")
    with world.changes() as changed:
        assert world.publish("a", seq=7, route=known).status == "DUPLICATE"
    assert changed == {}


def test_publish_repeated_answers_the_same_verdicts(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="x"))
    batch = (prepared("a", digest="x"), prepared("b", digest="y"), prepared("a", digest="z"))
    assert world.publish(*batch, seq=9).verdicts == "DAC"
    with world.changes() as changed:
        again = world.publish(*batch, seq=9)
    assert (again.status, again.verdicts) == ("DUPLICATE", "DAC")
    assert changed == {}


def test_publish_with_the_number_of_another_batch_is_a_conflict(world: World) -> None:
    world.subscribe()
    world.publish("a", seq=7, checksum="s")
    with world.changes() as changed:
        assert world.publish("b", seq=7, checksum="other").status == "LANE_CONFLICT"
    assert changed == {}


def test_publish_overtaken_by_a_later_call_is_a_conflict(world: World) -> None:
    world.subscribe()
    world.publish("b", seq=8)
    with world.changes() as changed:
        assert world.publish("a", seq=7).status == "LANE_CONFLICT"
    assert changed == {}


def test_publish_lanes_do_not_see_each_other_and_expire(world: World) -> None:
    world.subscribe()
    world.publish("a", producer="p", seq=8)
    assert world.publish("b", producer="q", seq=1).status == "OK"
    assert 3_590_000 < world.client.pttl(world.keys.lane("q")) <= 3_600_000


@pytest.mark.parametrize("groups", [0, 1])
def test_publish_of_nothing_marks_its_lane_and_changes_nothing_else(
    world: World, groups: int
) -> None:
    if groups:
        world.subscribe()
    with world.changes() as changed:
        assert world.publish(producer="p", seq=7, checksum="s").status == "OK"
    assert changed == {"lane:p": "7 s"}
    assert world.publish(producer="p", seq=7, checksum="s").status == "DUPLICATE"
    assert world.publish(producer="p", seq=7, checksum="t").status == "LANE_CONFLICT"


def test_publish_by_a_stale_route_writes_nothing_and_reports_the_new_one(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        published = world.publish("a", route=Route())
    assert (published.status, published.route) == ("STALE_ROUTE", world.route)
    assert changed == {}


def test_publish_by_a_route_that_the_partition_does_not_know_yet_writes_nothing(
    world: World,
) -> None:
    with world.changes() as changed:
        published = world.publish("a", route=Route(version=3))
    assert (published.status, published.route) == ("STALE_ROUTE", Route())
    assert changed == {}


def test_publish_of_a_known_id_stores_nothing_and_says_whether_the_body_differs(
    world: World,
) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="x"))
    with world.changes() as changed:
        published = world.publish(prepared("a", digest="x"), prepared("a", digest="y"))
    assert published.verdicts == "DC"
    assert changed == {"lane:p": "2 sum DC"}


def test_publish_under_an_id_that_a_client_made_finds_its_message_while_it_lives(
    world: World,
) -> None:
    world.subscribe()
    world.publish("a")
    with world.changes() as changed:
        assert world.publish(prepared("a", "other", digest="x")).verdicts == "D"
    assert changed == {"lane:p": "2 sum D"}


def test_publish_of_one_id_twice_in_a_batch_stores_the_first(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        batch = (prepared("a", "1", digest="x"), prepared("a", "2", digest="y"))
        assert world.publish(*batch).verdicts == "AC"
    assert changed == {
        "bodies": {"a": "1"},
        "ids": {"a": "x"},
        "g:ready": ["a"],
        "g:wake": {"1": 0},
        "lane:p": "1 sum AC",
        "counters": {"publish:g": 1},
        "events": ["publish  p a"],
    }


def test_publish_remembers_an_id_for_an_hour_after_its_message_is_gone(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="x"))
    world.succeed(*world.leased("a", publish=False))
    assert world.state()["id_expiry"] == {"a": START_MS + HOUR}
    world.set_time(START_MS + HOUR - 1)
    assert world.publish(prepared("a", digest="x")).verdicts == "D"
    assert world.publish(prepared("a", digest="y")).verdicts == "C"
    world.advance(1)
    with world.changes() as changed:
        assert world.publish(prepared("a", digest="y")).verdicts == ""
    assert changed == {
        "bodies": {"a": "body of a"},
        "ids": {"a": "y"},
        "id_expiry": {"a": None},
        "g:ready": ["a"],
        "g:wake": {"1": 0},
        "lane:p": "4 sum",
        "counters": {"publish:g": 1},
        "events": ["publish  p a"],
    }


def test_publish_notes_the_size_of_a_big_body(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        world.publish(prepared("a", "x" * 8192), prepared("b", "x" * 8193))
    assert changed["big"] == {"b": "8193"}


def test_publish_with_a_delay_waits_for_the_whole_topic(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    with world.changes() as changed:
        world.publish(prepared("a", delay_ms=5 * SECOND), "b")
    assert changed == {
        "bodies": {"a": "body of a", "b": "body of b"},
        "pending": {"b": "ab"},
        "scheduled": {"a": START_MS + 5 * SECOND},
        "g:ready": ["b"],
        "g:wake": {"1": 0},
        "h:ready": ["b"],
        "h:wake": {"1": 0},
        "lane:p": "1 sum",
        "counters": {"publish:g": 1, "publish:h": 1},
        "events": ["publish  p a b"],
    }


def test_publish_with_a_delay_wakes_where_it_is_the_next_thing_to_happen(world: World) -> None:
    world.subscribe()
    for delay_s, wakes in ((5, True), (6, False), (4, True)):
        with world.changes() as changed:
            world.publish(prepared(f"m{delay_s}", delay_ms=delay_s * SECOND))
        assert ("g:wake" in changed) is wakes


def test_publish_takes_a_full_batch_of_ids_that_the_caller_chose(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    ids = [f"m{n}" for n in range(500)]
    assert world.publish(*(prepared(id_, digest="x") for id_ in ids)).status == "OK"
    state = world.state()
    assert state["g:ready"] == state["h:ready"] == ids
    assert set(state["ids"]) == set(state["pending"]) == set(state["bodies"]) == set(ids)


def limited(world: World, most: int) -> None:
    world.subscribe()
    world.route = replace(world.route, version=9, max_messages=most)
    world.run(catalog.subscribe(world.keys, world.route))


def test_publish_that_would_go_over_the_limit_stores_nothing(world: World) -> None:
    limited(world, 3)
    world.publish("a", "b")
    with world.changes() as changed:
        answer = world.publish("c", "d")
    assert (answer.status, answer.stored, answer.limit) == ("FULL", 2, 3)
    assert changed == {}
    assert world.publish("c").status == "OK"


def test_publish_of_ids_of_the_caller_over_the_limit_stores_nothing(world: World) -> None:
    limited(world, 1)
    new = (prepared("a", digest="x"), prepared("b", digest="y"))
    with world.changes() as changed:
        assert world.publish(*new).status == "FULL"
    assert changed == {}
    assert world.publish(new[0]).status == "OK"


def test_publish_to_a_full_topic_goes_on_when_messages_are_done(world: World) -> None:
    limited(world, 1)
    receipts = world.leased("a")
    assert world.publish(prepared("b", delay_ms=1)).status == "FULL"
    world.succeed(*receipts)
    assert world.publish(prepared("b", delay_ms=1)).status == "OK"


def test_publish_again_of_what_a_full_topic_has_is_a_duplicate(world: World) -> None:
    limited(world, 1)
    world.publish(prepared("a", digest="d"), seq=5)
    assert world.publish(prepared("a", digest="d"), seq=5).status == "DUPLICATE"
    assert world.publish(prepared("a", digest="d"), seq=6).verdicts == "D"


def test_publish_repeated_keeps_the_memory_of_its_call_alive(world: World) -> None:
    world.subscribe()
    world.publish("a", seq=7)
    world.client.pexpire(world.keys.lane("p"), 5 * SECOND)
    assert world.publish("a", seq=7).status == "DUPLICATE"
    assert world.client.pttl(world.keys.lane("p")) > 5 * SECOND


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_publish_behind_a_call_stores_its_messages_once_that_is_done(
    world: World, groups: int
) -> None:
    for name in ("g", "h")[:groups]:
        world.subscribe(name)
    front = Front("q", "7 one")
    with world.changes() as changed:
        answer = world.publish("b", producer="p", seq=4, checksum="two", front=front)
    assert (answer.status, changed) == ("LANE_GAP", {})

    world.publish("a", producer="q", seq=7, checksum="one")
    with world.changes() as changed:
        answer = world.publish("b", producer="p", seq=4, checksum="two", front=front)

    assert (answer.status, changed["bodies"]) == ("OK", {"b": "body of b"})
    assert changed["lane:p"] == "4 two"
    assert changed["events"] == ["publish  p b"]
    assert world.client.xrevrange(world.keys.events)[0][1][b"b"] == b""
    assert world.state()["g:ready" if groups else "backlog"] == ["a", "b"]


@pytest.mark.parametrize(("seq", "checksum"), [(6, "one"), (8, "one"), (7, "other")])
def test_publish_behind_a_call_that_is_not_the_last_of_its_lane_writes_nothing(
    world: World, seq: int, checksum: str
) -> None:
    world.publish("a", producer="q", seq=seq, checksum=checksum)
    with world.changes() as changed:
        answer = world.publish("b", producer="p", seq=4, front=Front("q", "7 one"))
    assert (answer.status, changed) == ("LANE_GAP", {})


def test_publish_behind_a_call_does_not_ask_for_its_verdicts(world: World) -> None:
    world.publish(prepared("a", digest="x"))
    known, new = prepared("a", digest="x"), prepared("b", digest="y")
    world.publish(known, new, producer="q", seq=7, checksum="one")
    assert world.client.get(world.keys.lane("q")) == b"7 one DA"

    front = Front("q", "7 one")
    answer = world.publish(prepared("c", digest="z"), producer="p", seq=4, front=front)

    assert (answer.status, answer.verdicts) == ("OK", "")
    assert world.state()["ids"] == {"a": "x", "b": "y", "c": "z"}


def test_publish_behind_a_call_on_the_same_lane(world: World) -> None:
    front = Front("p", "6 one")
    world.publish("a", producer="p", seq=5, checksum="zero")
    assert world.publish("c", producer="p", seq=7, front=front).status == "LANE_GAP"
    world.publish("b", producer="p", seq=6, checksum="one")
    assert world.publish("c", producer="p", seq=7, front=front).status == "OK"
    assert world.state()["backlog"] == ["a", "b", "c"]


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_publish_of_ids_that_are_all_new_leaves_what_it_leaves_one_by_one(
    world: World, groups: int
) -> None:
    for name in ("g", "h")[:groups]:
        world.subscribe(name)
    ready = {f"{name}:ready": ["a", "b"] for name in ("g", "h")[:groups]}
    bodies = {"a": "x" * 9000, "b": "body of b"}
    with world.changes() as changed:
        answer = world.publish(prepared("a", bodies["a"], digest="d"), prepared("b", digest="e"))
    assert (answer.status, answer.verdicts) == ("OK", "")
    assert changed == {
        "bodies": bodies,
        "big": {"a": "9000"},
        "ids": {"a": "d", "b": "e"},
        **(ready or {"backlog": ["a", "b"]}),
        **{key.replace("ready", "wake"): {"1": 0} for key in ready},
        **({"pending": {"a": "ab", "b": "ab"}} if groups > 1 else {}),
        "lane:p": "1 sum",
        **({"counters": {f"publish:{key[0]}": 2 for key in ready}} if ready else {}),
        "events": ["publish  p a b"],
    }
    assert not world.client.hexists(world.keys.meta, "?")


def test_publish_behind_a_call_is_answered_as_before_when_it_is_repeated(world: World) -> None:
    world.publish("a", producer="q", seq=7, checksum="one")
    world.publish("b", producer="p", seq=4, front=Front("q", "7 one"))
    world.publish("c", producer="q", seq=8, checksum="three", front=Front("p", "4 sum"))
    with world.changes() as changed:
        answer = world.publish("b", producer="p", seq=4, front=Front("q", "7 one"))
    assert (answer.status, changed) == ("DUPLICATE", {})


def test_publish_of_new_ids_where_others_are_to_be_forgotten_leaves_those_alone(
    world: World,
) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="x"))
    world.succeed(*world.leased("a", publish=False))
    with world.changes() as changed:
        assert world.publish(prepared("b", digest="x"), prepared("a", digest="x")).verdicts == "AD"
    assert changed["ids"] == {"b": "x"}
    assert "id_expiry" not in changed


@pytest.mark.parametrize("other", ["a", "c"])
def test_publish_after_one_of_new_ids_was_cut_at_its_start_takes_them_as_new(
    world: World, other: str
) -> None:
    world.client.hset(world.keys.meta, "?", "a b")  # what it notes first
    world.client.hset(world.keys.bodies, "a", "body of a")
    assert world.publish(prepared(other, digest="d")).verdicts == ""
    assert world.publish(prepared("a", digest="d"), producer="q").verdicts in {"", "D"}
    assert world.publish(prepared("b", digest="d"), producer="r").verdicts == ""
    assert {*world.state()["backlog"]} == {"a", "b", other}
    assert world.state()["ids"] == dict.fromkeys({"a", "b", other}, "d")
    assert not world.client.hexists(world.keys.meta, "?")


def test_publish_after_one_of_new_ids_was_cut_at_its_end_knows_them(world: World) -> None:
    world.publish(prepared("a", digest="d"), prepared("b", digest="d"))
    world.client.hset(world.keys.meta, "?", "a b")  # all but the last call of the script
    answer = world.publish(prepared("a", digest="d"), prepared("c", digest="d"), producer="q")
    assert answer.verdicts == "DA"
    assert world.publish(prepared("b", digest="e"), producer="r").verdicts == "C"
    assert not world.client.hexists(world.keys.meta, "?")


def test_publish_of_an_id_of_a_half_whose_rollback_was_cut_is_refused(world: World) -> None:
    world.damage().hset(
        world.keys.half_of, "a", "t 00000000 a"
    )  # its body is gone, this comes next
    answer = world.publish(prepared("a", digest="d"), prepared("b", digest="d"))
    assert answer.verdicts == "HA"
    assert world.state()["bodies"] == {"b": "body of b"}
