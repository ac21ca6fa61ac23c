"""The journal reader against a real server: what it tells of each verb, and how it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry.core.receipt import Receipt
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.lua.conftest import virtual_time
from tests.lua.crash_cases import CASES
from tests.lua.crash_cases_kept import KEPT, keep
from tests.lua.crash_cases_ordered import ORDERED
from tests.model.checker.aof import aof_files, parse, read_blocks
from tests.model.checker.check import check
from tests.model.checker.journal import follow, read_journal
from tests.model.checker.keyspace import Keyspace
from tests.model.checker.records import Expectations, Records
from tests.model.checker.snapshot import disagreements, take_snapshot
from tests.support.backends import server_backend
from tests.support.builders import HOUR, SECOND, failure, first, prepared
from tests.support.world import VISIBILITY_MS, World

MULTI = b"*1\r\n$5\r\nMULTI\r\n"
EXEC = b"*1\r\n$4\r\nEXEC\r\n"
SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nv1\r\n"
TOO_EARLY_KEPT = {"I1", "I1b", "I1c", "I7", "I10", "records"}
"""What a start state that was made by hand, or a story without its end, may break."""


@pytest.fixture
def world(checked_server: EmbeddedRedis) -> Iterator[World]:
    backend = server_backend("redis-7", checked_server.url, virtual_time())
    yield World(backend)
    backend.close()


def directory(server: EmbeddedRedis) -> Path:
    return server.socket_path.parent


def stated(server: EmbeddedRedis) -> list[str]:
    """The journal since the world began, a line per transition."""
    lines: list[str] = []
    for block in follow(since_flush(server), "test").transitions:
        lease = f" {block.lease_no}:{block.attempt}" if block.lease_no else ""
        place = f" {block.lane}" if block.lane else ""
        lines.append(f"{block.kind} {block.id}{lease}{place}")
    return lines


def since_flush(server: EmbeddedRedis) -> list:  # type: ignore[type-arg]
    blocks = list(read_blocks(directory(server)))
    flushes = [i for i, b in enumerate(blocks) if b.commands[0][0].upper() == "FLUSHALL"]
    return blocks[flushes[-1] :]


def test_a_message_fails_is_retried_and_commits(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe()
    world.leased("a")
    world.renew(*first("a"), visibility_ms=2 * VISIBILITY_MS)
    world.fail(failure("a"))
    world.advance(10 * SECOND)
    world.promote()
    assert world.lease().numbers == [(2, 2)]
    world.succeed(Receipt("a", 2))

    assert stated(checked_server) == [
        "create a", "enter a 1:1 ready", "lease a 1:1 inflight", "renew a 1:1 inflight",
        "fail a 1:1 delay", "promote a 2:2 retry", "lease a 2:2 inflight", "succeed a 2:2",
        "remove a",
    ]  # fmt: skip


def test_a_message_expires_twice_dies_and_is_sent_back_and_purged(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe(max_retries=1)
    world.leased("a")
    world.advance(VISIBILITY_MS)
    world.expire()
    assert world.lease(prefer="retry").ids == ["a"]
    world.advance(VISIBILITY_MS)
    world.expire()
    world.redrive("a")
    world.lease()
    world.fail(failure("a", 4, level=-1, cause="rejected"))
    world.purge("a")

    assert stated(checked_server) == [
        "create a", "enter a 1:1 ready", "lease a 1:1 inflight", "expire a 1:1 retry",
        "lease a 2:2 inflight", "expire a 2:2 dead", "dead a 2:2 dead", "redrive a 4:1 ready",
        "lease a 4:1 inflight", "fail a 4:1 dead", "dead a 4:1 dead", "purge a", "remove a",
    ]  # fmt: skip
    causes = [s.cause for s in follow(since_flush(checked_server), "test").transitions if s.cause]
    assert causes == ["expired", "rejected"]


def test_a_message_is_kept_and_delivered_again_from_its_first_attempt(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe()
    keep(world)
    world.succeed(*world.leased("a"))
    world.replay()
    ((number, _),) = world.lease().numbers
    world.succeed(Receipt("a", number))

    assert stated(checked_server) == [
        "create a", "enter a 1:1 ready", "lease a 1:1 inflight", "succeed a 1:1", "remove a",
        "create a", f"enter a {number}:1 ready", f"lease a {number}:1 inflight",
        f"succeed a {number}:1", "remove a",
    ]  # fmt: skip


def test_a_message_is_given_back_postponed_and_changed(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.release(*first("a"))
    world.release(*first("b"), delays_ms=[SECOND], max_postpones=5)
    world.lease()
    world.change(Receipt("a", 2), 5 * SECOND)

    assert stated(checked_server)[4:] == [
        "lease a 1:1 inflight", "lease b 1:1 inflight", "release a 1:1 ready",
        "release b 1:1 delay", "lease a 2:1 inflight", "change a 3:1 inflight",
    ]  # fmt: skip


def test_two_groups_own_a_message_until_both_are_done(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.leased("a", group="g")
    world.succeed(*first("a"), group="g")
    world.leased("a", group="h", publish=False)
    world.succeed(*first("a"), group="h")

    journal = follow(since_flush(checked_server), "test")

    assert [(s.kind, s.group) for s in journal.transitions] == [
        ("create", ""), ("enter", "g"), ("enter", "h"), ("lease", "g"), ("succeed", "g"),
        ("lease", "h"), ("succeed", "h"), ("remove", ""),
    ]  # fmt: skip


def test_delayed_messages_and_a_backlog_enter_late(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.publish("b")
    world.subscribe()
    world.publish(prepared("a", delay_ms=SECOND))
    world.advance(SECOND)
    world.deliver()

    assert stated(checked_server) == [
        "create b", "enter b 1:1 ready", "create a", "enter a 1:1 ready",
    ]  # fmt: skip


def test_an_ordered_message_enters_with_its_place_in_line(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe(ordered=True)
    world.publish(prepared("a", group="x"), prepared("b", group="x"))
    assert world.lease().ids == ["a"]
    world.succeed(*first("a"))

    steps = follow(since_flush(checked_server), "test").transitions
    orders = [step.order for step in steps if step.kind == "enter"]
    assert orders == ["0000000000000001x", "0000000000000002x"]


def test_in_every_case_of_the_crash_points_the_journal_ends_where_the_server_does(
    world: World, checked_server: EmbeddedRedis
) -> None:
    snapshots = []
    cases = [*CASES, *ORDERED, *KEPT]
    for case in cases:
        world = World(world.backend)
        case.start(world)
        case.act(world)
        world.advance(HOUR)
        world.expire()
        snapshots.append(take_snapshot(world.client, "test"))

    segments: list[list[object]] = []
    for block in read_blocks(directory(checked_server)):
        if block.commands[0][0].upper() == "FLUSHALL":
            segments.append([])
        if segments:
            segments[-1].append(block)

    found = []
    for case, final, blocks in zip(cases, snapshots, segments[-len(cases) :], strict=True):
        journal = follow(blocks, "test")  # type: ignore[arg-type]
        assert disagreements(journal.final, final, "test") == [], case.name
        report = check(Records(journal=journal, final=final, expect=Expectations(operator=True)))
        wrong = [f for f in report.findings if f.invariant not in TOO_EARLY_KEPT]
        # The cases choose the dead letters with a cause that counts, which no worker does.
        found += [(case.name, f) for f in wrong if "with attempts left" not in f.text]
    assert found == []


def test_a_journal_and_a_server_that_differ_in_one_key_are_reported(
    world: World, checked_server: EmbeddedRedis
) -> None:
    world.subscribe()
    world.publish("a")
    final = take_snapshot(world.client, "test")
    journal = read_journal(directory(checked_server), "test")
    final.values[world.group().ready] = Keyspace({"x": "y"}).values["x"]

    assert disagreements(journal.final, final, "test") == [
        f"{world.group().ready}: the journal ends with Listed(['a']), the server has 'y'"
    ]


def test_a_tail_that_was_cut_off_is_left_out_with_its_whole_block() -> None:
    whole = SET + MULTI + SET + SET + EXEC
    assert [len(commands) for commands in parse(whole)] == [1, 2]

    for length in range(len(SET), len(whole)):
        assert [len(commands) for commands in parse(whole[:length])] == [1]


def test_what_is_no_append_only_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the start of a command"):
        list(parse(b"REDIS0011"))
    with pytest.raises(FileNotFoundError):
        aof_files(tmp_path)


def test_a_write_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="SUNIONSTORE"):
        Keyspace().apply(["SUNIONSTORE", "a", "b"])
