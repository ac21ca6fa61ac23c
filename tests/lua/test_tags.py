"""Tags: a group takes only some messages of a topic, chosen when they are published or fall due."""

from dataclasses import replace

from tests.support.builders import HOUR, SECOND, prepared
from tests.support.world import START_MS, World


def take(world: World, group: str, tags: str) -> None:
    """A group takes something else from now on."""
    groups = tuple(g._replace(tags=tags) if g.name == group else g for g in world.route.groups)
    world.route = replace(world.route, version=world.route.version + 1, groups=groups)
    world.install()


def test_publish_goes_to_the_groups_that_take_the_tag(world: World) -> None:
    world.subscribe("g", tags="paid || refunded")
    world.subscribe("h")
    world.subscribe("i", tags="refunded")
    with world.changes() as changed:
        world.publish(prepared("a", tag="paid"), prepared("b", tag="refunded"), "c")
    assert changed == {
        "bodies": {id_: f"body of {id_}" for id_ in "abc"},
        "pending": {"a": "ab", "b": "abc"},
        "g:ready": ["a", "b"],
        "g:wake": {"1": 0},
        "h:ready": ["a", "b", "c"],
        "h:wake": {"1": 0},
        "i:ready": ["b"],
        "i:wake": {"1": 0},
        "lane:p": "1 sum",
        "counters": {
            "publish:g": 2, "publish:h": 3, "publish:i": 1, "filtered:g": 1,
            "filtered:i": 2,
        },
        "events": ["publish  p a b c"],
    }  # fmt: skip


def test_publish_of_what_no_group_wants_is_accepted_counted_and_not_stored(world: World) -> None:
    world.subscribe("g", tags="paid")
    world.subscribe("h", tags="refunded")
    with world.changes() as changed:
        published = world.publish(prepared("a", "x" * 9000, tag="other"), "b")
    assert (published.status, published.verdicts) == ("OK", "")
    assert changed == {
        "lane:p": "1 sum",
        "counters": {"filtered:g": 2, "filtered:h": 2},
        "events": ["publish  p a b"],
    }


def test_an_id_of_the_caller_that_no_group_wants_is_remembered_for_its_hour(world: World) -> None:
    world.subscribe(tags="paid")
    message = prepared("a", tag="other", digest="d")
    with world.changes() as changed:
        world.publish(message)
    assert changed["ids"] == {"a": "d"}
    assert changed["id_expiry"] == {"a": START_MS + HOUR}
    assert world.publish(message).verdicts == "D"
    assert world.publish(message._replace(digest="other")).verdicts == "C"
    world.advance(HOUR)
    assert world.publish(message).verdicts == ""


def test_a_full_topic_still_accepts_what_is_not_stored(world: World) -> None:
    world.subscribe(tags="paid")
    world.route = replace(world.route, version=9, max_messages=1)
    world.install()
    world.publish(prepared("a", tag="paid"))
    assert world.publish(prepared("b", tag="paid")).status == "FULL"
    assert world.publish(prepared("c", tag="other")).status == "OK"


def test_the_only_group_that_takes_a_message_deletes_its_body(world: World) -> None:
    world.subscribe("g", tags="paid")
    world.subscribe("h", tags="refunded")
    world.publish(prepared("a", tag="paid"))
    assert "pending" not in world.state()
    world.succeed(*world.leased("a", publish=False))
    assert "bodies" not in world.state()


def test_the_backlog_is_taken_whole_whatever_the_first_group_filters(world: World) -> None:
    world.publish(prepared("a", tag="paid"), "b")
    world.subscribe(tags="other")
    assert world.lease().ids == ["a", "b"]


def test_other_tags_apply_to_what_is_published_later(world: World) -> None:
    world.subscribe(tags="paid")
    world.publish(prepared("a", tag="paid"), prepared("b", tag="other"))
    take(world, "g", "other")
    world.publish(prepared("c", tag="paid"), prepared("d", tag="other"))
    assert world.lease().ids == ["a", "d"]


def test_publish_by_a_route_with_other_tags_writes_nothing(world: World) -> None:
    world.subscribe(tags="paid")
    known = world.route
    take(world, "g", "other")
    with world.changes() as changed:
        answer = world.publish(prepared("a", tag="paid"), route=known)
    assert (answer.status, answer.route) == ("STALE_ROUTE", world.route)
    assert changed == {}


def test_what_is_delayed_waits_with_its_tag_and_is_delivered_to_who_takes_it_then(
    world: World,
) -> None:
    world.subscribe("g")
    world.subscribe("h", tags="other")
    messages = [prepared(id_, tag=id_, delay_ms=SECOND) for id_ in ("paid", "other")]
    with world.changes() as changed:
        world.publish(*messages, prepared("none", delay_ms=SECOND))
    due = START_MS + SECOND
    assert changed["scheduled"] == {"paid paid": due, "other other": due, "none": due}
    assert "counters" not in changed
    take(world, "h", "paid")
    world.advance(SECOND)
    with world.changes() as changed:
        assert world.deliver() == ("OK", 3, None, None)
    assert changed == {
        "scheduled": {"paid paid": None, "other other": None, "none": None},
        "pending": {"paid": "ab"},
        "g:ready": ["none", "other", "paid"],
        "g:wake": {"1": 0},
        "h:ready": ["paid"],
        "h:wake": {"1": 0},
        "counters": {"publish:g": 3, "publish:h": 1, "filtered:h": 2},
        "events": ["deliver  w1 none other paid"],
    }


def test_a_delivery_that_no_group_wants_is_gone_and_counted(world: World) -> None:
    world.subscribe(tags="paid")
    world.publish(prepared("a", "x" * 9000, tag="other", digest="d", delay_ms=1))
    world.advance(1)
    with world.changes() as changed:
        world.deliver()
    assert changed == {
        "scheduled": {"a other": None},
        "bodies": {"a": None},
        "big": {"a": None},
        "id_expiry": {"a": START_MS + 1 + HOUR},
        "counters": {"filtered:g": 1},
        "events": ["deliver  w1 a"],
    }


def test_a_delivery_moves_only_what_is_still_scheduled_and_due(world: World) -> None:
    world.subscribe("g", tags="a || b || c")
    world.publish(*(prepared(id_, tag=id_, delay_ms=SECOND) for id_ in "ab"))
    world.publish(prepared("c", tag="c", delay_ms=HOUR))
    world.advance(SECOND - 1)
    assert world.recall("a", "a") == "OK"
    world.advance(1)
    with world.changes() as changed:
        assert world.deliver_these("a a", "b b", "c c") == ("OK", 1, HOUR - SECOND, None)
    assert (changed["scheduled"], changed["g:ready"]) == ({"b b": None}, ["b"])
    with world.changes() as changed:
        world.deliver_these("b b")
    assert changed == {}


def test_a_delivery_that_was_cut_goes_where_it_was_going_whatever_is_taken_now(
    world: World,
) -> None:
    world.subscribe("g", tags="a")
    world.subscribe("h")
    world.publish(prepared("a", tag="a", delay_ms=1))
    world.advance(1)
    world.client.hset(world.keys.pending, "a", "ab")  # all that the cut left
    take(world, "g", "other")
    world.deliver()
    assert (world.lease(group="g").ids, world.lease(group="h").ids) == (["a"], ["a"])


def test_recall_needs_the_tag_that_the_message_waits_under(world: World) -> None:
    world.subscribe(tags="paid")
    world.publish(prepared("a", tag="paid", delay_ms=SECOND))
    with world.changes() as changed:
        assert world.recall("a") == "LATE"
    assert changed == {}
    with world.changes() as changed:
        assert world.recall("a", "paid") == "OK"
    assert changed["scheduled"] == {"a paid": None}


def test_looking_at_what_is_due_is_bounded_and_changes_nothing(world: World) -> None:
    world.publish(*(prepared(id_, delay_ms=SECOND) for id_ in "abc"), prepared("d", delay_ms=HOUR))
    with world.changes() as changed:
        assert world.due_members() == ([], SECOND)
        world.advance(SECOND)
        assert world.due_members(limit=2) == (["a", "b"], 0)
        assert world.due_members() == (["a", "b", "c"], 0)
    assert changed == {}
