"""Ordered groups: one message of a message group is out at a time, in the order of publishing."""

from rqretry.core.receipt import Receipt
from rqretry.protocol import catalog, inspect, operate
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.ordering import leased, line, sent
from tests.support.world import START_MS, VISIBILITY_MS, World


def test_publish_makes_only_the_first_of_a_message_group_ready(world: World) -> None:
    world.subscribe(ordered=True)
    with world.changes() as changed:
        world.publish(*sent("ab", "x"), *sent("c", "y"), "d")
    assert changed == {
        "bodies": {id_: f"body of {id_}" for id_ in "abcd"},
        "message_groups": {
            "a": "0000000000000001x", "b": "0000000000000002x", "c": "0000000000000003y",
            "d": "0000000000000004 ",
        },
        "g:line": {
            "x\x000000000000000001a": 0, "x\x000000000000000002b": 0, "y\x000000000000000003c": 0,
            " \x000000000000000004d": 0,
        },
        "g:heads": {"x": "a", "y": "c", " ": "d"},
        "g:ready": ["a", "c", "d"],
        "g:wake": {"1": 0},
        "lane:p": "1 sum",
        "counters": {"publish:g": 4},
        "events": ["publish  p a b c d"],
    }  # fmt: skip
    with world.changes() as changed:
        world.publish(*sent("e", "x"), *sent("f", "z"))
    assert (changed["g:ready"], changed["g:heads"]) == (["a", "c", "d", "f"], {"z": "f"})


def test_publish_of_a_message_group_to_a_group_that_is_not_ordered(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h", ordered=True)
    world.publish(*sent("ab"))
    state = world.state()
    assert (state["g:ready"], state["h:ready"]) == (["a", "b"], ["a"])
    assert "g:line" not in state


def test_success_lets_the_next_one_go_and_leaves_nothing_behind(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    receipts = world.leased("a", publish=False)
    with world.changes() as changed:
        assert world.succeed(*receipts) == ["OK"]
    assert changed == {
        "bodies": {"a": None},
        "message_groups": {"a": None},
        "g:line": {"x\x000000000000000001a": None},
        "g:heads": {"x": "b"},
        "g:ready": ["b"],
        "g:wake": {"1": 0},
        "g:inflight": {"a": None},
        "counters": {"succeed:g": 1},
        "events": ["succeed g w1 a"],
    }
    world.succeed(*world.leased("b", publish=False))
    assert not {"g:line", "g:heads", "message_groups", "bodies"} & world.state().keys()


def test_failure_keeps_its_message_group_waiting_for_the_fixed_interval(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"), *sent("c", "y"))
    world.lease(1)
    (failed,) = world.fail(failure("a", level=7, delay_ms=99))
    assert failed.due_ms == START_MS + SECOND
    assert world.state()["g:heads"] == {"x": "a", "y": "c"}
    assert leased(world) == ["c"]
    world.advance(SECOND)
    world.promote()
    assert leased(world) == ["a"]
    assert line(world) == ["x1a", "x2b", "y3c"]


def test_the_last_failure_dead_letters_the_message_and_lets_the_next_one_go(world: World) -> None:
    world.subscribe(ordered=True, max_retries=0)
    world.publish(*sent("ab"))
    world.lease()
    with world.changes() as changed:
        assert [failed.dead for failed in world.fail(failure("a"))] == [True]
    assert changed["g:heads"] == {"x": "b"}
    assert changed["g:ready"] == ["b"]
    assert changed["g:line"] == {"x\x000000000000000001a": None}
    assert changed["g:wake"] == {"1": 0}
    assert "message_groups" not in changed


def test_a_handler_that_gives_up_lets_the_next_one_go(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.fail(failure("a", level=-1))
    assert leased(world) == ["b"]


def test_an_expired_lease_is_given_again_before_the_next_one(world: World) -> None:
    world.subscribe(ordered=True, max_retries=1)
    world.publish(*sent("ab"))
    world.lease()
    world.advance(VISIBILITY_MS)
    world.expire()
    assert world.lease().ids == ["a"]
    world.advance(VISIBILITY_MS)
    world.expire()
    assert list(world.state()["g:dead"]) == ["a"]
    assert leased(world) == ["b"]


def test_unlimited_retries_block_until_success(world: World) -> None:
    world.subscribe(ordered=True, max_retries=-1)
    world.publish(*sent("ab"))
    for lease_no in range(1, 30):
        assert leased(world, prefer="retry") == ["a"]
        world.fail(failure("a", lease_no))
        world.advance(SECOND)
        world.promote()
    assert leased(world) == ["a"]
    assert world.succeed(Receipt("a", 30)) == ["OK"]
    assert leased(world) == ["b"]


def test_what_is_given_back_or_postponed_stays_before_the_others(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.release(*first("a"))
    assert leased(world) == ["a"]
    world.release(Receipt("a", 2), delays_ms=[SECOND], max_postpones=1)
    assert leased(world) == []
    world.advance(SECOND)
    world.promote()
    assert leased(world) == ["a"]


def test_message_groups_settled_together_each_go_on(world: World) -> None:
    world.subscribe(ordered=True)
    for name in "uvwxyz":
        world.publish(*(prepared(f"{name}{n}", group=name) for n in range(3)))
    for n in range(3):
        assert leased(world) == [f"{name}{n}" for name in "uvwxyz"]
        assert set(world.succeed(*first(*(f"{name}{n}" for name in "uvwxyz")))) == {"OK"}
    assert "g:line" not in world.state()


def test_message_groups_whose_names_begin_alike_do_not_meet(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("a", "x"), *sent("b", "xx"), *sent("c", "x"), *sent("d", "xx"))
    assert leased(world) == ["a", "b"]
    world.succeed(*first("a"))
    assert leased(world) == ["c"]
    world.succeed(*first("c"))
    assert world.state()["g:heads"] == {"xx": "b"}


def test_a_redriven_message_goes_to_the_end_of_its_message_group(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    world.lease()
    world.fail(failure("a", level=-1))
    assert leased(world) == ["b"]
    assert world.redrive("a") == ["OK"]
    assert leased(world) == []
    assert line(world) == ["x2b", "x3c", "x4a"]
    world.succeed(*first("b"))
    world.succeed(*world.leased("c", publish=False))
    assert leased(world) == ["a"]


def test_a_message_redriven_into_an_idle_message_group_goes_at_once(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab"))
    for id_ in "ab":
        assert leased(world) == [id_]
        world.fail(failure(id_, level=-1))
    world.redrive("b", "a")
    assert leased(world) == ["b"]
    assert world.succeed(Receipt("b", 3)) == ["OK"]
    assert leased(world) == ["a"]


def test_a_message_redriven_with_a_delay_enters_the_line_when_it_is_due(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    world.lease()
    world.fail(failure("a", level=-1))
    world.redrive("a", delays_ms=[SECOND])
    assert leased(world) == ["b"]
    assert line(world) == ["x2b", "x3c"]
    world.advance(SECOND)
    world.promote()
    assert leased(world) == []
    assert line(world) == ["x2b", "x3c", "x4a"]
    world.succeed(*first("b"))
    assert leased(world) == ["c"]
    world.succeed(*first("c"))
    assert leased(world) == ["a"]


def test_two_messages_redriven_with_a_delay_into_an_idle_message_group(world: World) -> None:
    world.subscribe(ordered=True, max_retries=0)
    world.publish(*sent("ab"))
    for id_ in "ab":
        assert leased(world) == [id_]
        world.fail(failure(id_))
    world.redrive("a", "b", delays_ms=[SECOND, SECOND])
    world.advance(SECOND)
    world.promote()
    assert leased(world, prefer="retry") == ["a"]
    assert world.succeed(Receipt("a", 3)) == ["OK"]
    assert leased(world) == ["b"]


def test_the_first_group_takes_the_backlog_in_order_and_then_the_route(world: World) -> None:
    world.publish(*(prepared(f"m{n:03}", group=f"x{n % 2}") for n in range(500)))
    world.publish(*sent("a", "x0"), "b")
    world.subscribe(ordered=True, install=False)
    install = catalog.subscribe(world.keys, world.route)
    assert world.run(install) == 2
    assert "route" not in world.state()  # what is published now goes behind what waits
    assert world.run(install) == 0
    assert world.state()["route"]["version"] == "1"
    assert leased(world) == ["m000", "m001", "b"]
    assert len(line(world)) == 502


def test_purging_who_is_out_lets_the_next_one_go(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abcd"))
    assert world.drop() == (1, 1)
    assert leased(world) == ["b"]
    world.purge("b", place="inflight")
    assert leased(world) == ["c"]
    world.fail(failure("c"))
    world.purge("c", place="delay:1")
    assert leased(world) == ["d"]


def test_purging_a_dead_letter_leaves_the_line_alone(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    world.lease()
    world.fail(failure("a", level=-1))
    assert leased(world) == ["b"]
    with world.changes() as changed:
        assert world.purge("a") == ["OK"]
    assert not {"g:line", "g:heads", "g:ready"} & changed.keys()
    assert changed["message_groups"] == {"a": None}


def test_blocked_messages_are_read_in_pages_and_cleared_without_who_is_out(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc", "x"), *sent("de", "y"))
    page = world.run(operate.scan_blocked(world.group(), count=2))
    assert page.ids == ["b"]
    rest = world.run(operate.scan_blocked(world.group(), after=page.after))
    assert (rest.ids, rest.after) == (["c", "e"], "")
    members = [*page.members, *rest.members]
    heads = [member for member in world.state()["g:line"] if member[-1] in "ad"]
    with world.changes() as changed:
        answer = world.run(
            operate.purge_blocked(world.group(), [*members, *heads, members[0]], actor="o")
        )
    assert answer == [b"OK"] * 3 + [b"GONE"] * 3
    assert changed == {
        "bodies": {"b": None, "c": None, "e": None},
        "message_groups": {"b": None, "c": None, "e": None},
        "g:line": dict.fromkeys(members),
        "counters": {"purge:g": 3},
        "events": ["purge g o b c e"],
    }
    with world.changes() as changed:
        assert world.run(operate.purge_blocked(world.group(), members, actor="o")) == [b"GONE"] * 3
    assert changed == {}


def test_a_blocked_message_that_had_failed_is_cleared_with_its_numbers_and_failures(
    world: World,
) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("ab", "x"))
    world.lease()
    world.fail(failure("a", level=-1))
    world.redrive("a")  # to the end of its message group, behind b
    page = world.run(operate.scan_blocked(world.group()))
    assert page.ids == ["a"]
    assert '"c":"failure"' in page.failures[0]
    with world.changes() as changed:
        assert world.run(operate.purge_blocked(world.group(), page.members, actor="o")) == [b"OK"]
    assert (changed["g:attempts"], changed["g:failures"]) == ({"a": None}, {"a": None})


def test_a_blocked_message_is_cleared_for_its_group_alone(world: World) -> None:
    world.subscribe("h")
    world.subscribe("g", ordered=True)
    world.publish(*sent("ab"))
    page = world.run(operate.scan_blocked(world.group()))
    with world.changes() as changed:
        assert world.run(operate.purge_blocked(world.group(), page.members, actor="o")) == [b"OK"]
    assert changed["pending"] == {"b": "a"}
    assert "bodies" not in changed


def test_a_redriven_message_that_is_cleared_is_again_where_it_was_published(world: World) -> None:
    world.subscribe("h", ordered=True)
    world.subscribe("g", ordered=True)
    world.publish(*sent("ab"))
    world.lease()
    world.fail(failure("a", level=-1))
    world.redrive("a")  # to the end of its message group, behind b
    page = world.run(operate.scan_blocked(world.group()))
    assert world.run(operate.purge_blocked(world.group(), page.members, actor="o")) == [b"OK"]
    assert world.state()["message_groups"]["a"] == "0000000000000001x"
    assert line(world, "g") == ["x2b"]
    assert line(world, "h") == ["x1a", "x2b"]


def test_a_group_leaves_nothing_of_its_lines(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"))
    assert world.leave() == 4  # one is ready, and three stand in line
    page = world.run(operate.scan_blocked(world.group()))
    world.run(operate.purge_blocked(world.group(), page.members, actor="o"))
    world.drop()
    assert world.leave() == 0
    assert not [key for key in world.state() if key.startswith("g:")]


def test_stats_count_who_is_blocked_and_peek_says_behind_whom(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*sent("abc"), "d")
    stats = world.run(inspect.stats(world.group()))
    assert (stats.ready, stats.blocked, stats.in_message_groups) == (2, 2, 4)
    seen = world.run(inspect.peek(world.group(), "c"))
    assert (seen.head, seen.ahead, seen.in_ready) == ("a", 2, None)
    out = world.run(inspect.peek(world.group(), "a"))
    assert (out.head, out.ahead, out.in_ready) == ("", 0, 0)
    alone = world.run(inspect.peek(world.group(), "d"))
    assert (alone.head, alone.ahead) == ("", 0)


def test_what_a_group_finished_is_kept_for_the_others(world: World) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h", ordered=True)
    world.publish(*sent("ab"))
    world.succeed(*world.leased("a", publish=False))
    assert world.lease(group="g").ids == ["b"]
    assert world.lease(group="h").ids == ["a"]
    assert line(world, "h") == ["x1a", "x2b"]
    assert "a" in world.state()["message_groups"]


def test_a_result_that_is_repeated_lets_the_next_one_go_though_the_message_group_is_forgotten(
    world: World,
) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h", ordered=True)
    world.publish(*sent("ab", "x"))
    for group in "gh":
        assert world.lease(group=group).ids == ["a"]
    world.client.hset(world.keys.pending, "a", "b")  # a call of g was cut behind this
    assert world.succeed(*first("a"), group="h") == ["OK"]
    assert "a" not in world.state()["message_groups"]
    assert world.succeed(*first("a"), group="g") == ["OK"]
    state = world.state()
    assert (state["g:ready"], state["g:heads"]) == (["b"], {"x": "b"})
