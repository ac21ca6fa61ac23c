"""A message that kills its worker is dead in the end, with how that worker ended; others live."""

import json

import pytest

from rqretry.core.parts import parts_of
from rqretry.protocol.audit_log import exit_records
from tests.chaos.conftest import Zoo
from tests.edges.cli.shell import Shell

pytestmark = pytest.mark.chaos

POISON = "victims_poison:app"


def dead(zoo: Zoo, group: str, count: int) -> None:
    """Wait for so many dead letters."""
    zoo.until(lambda: len(zoo.client.admin.dead_letters(group)) == count)


def arguments_of(zoo: Zoo, count: int) -> None:
    """Wait until so many processes have been heard of."""
    keys = parts_of(zoo.client).catalog.keys
    zoo.until(lambda: len(parts_of(zoo.client).store.run(exit_records(keys))) >= count)


def test_a_message_that_kills_its_worker_is_dead_with_its_last_output(zoo: Zoo) -> None:
    zoo.start(app=POISON)
    killed = zoo.client.publish("t", "kill")
    arguments_of(zoo, 2)
    dead(zoo, "g", 1)

    (dead_record,) = zoo.client.admin.dead_letters("g", ids=[killed])
    assert (dead_record.cause, dead_record.attempt, dead_record.body) == ("expired", 2, "kill")
    assert (dead_record.failures, dead_record.interruptions) == (0, 2)
    assert [error.cause for error in dead_record.errors] == ["expired", "expired"]
    assert [error.message for error in dead_record.errors] == [
        "the worker's process ended with SIGKILL while it ran this message"
    ] * 2
    log = zoo.log()
    assert f"ended (SIGKILL) while it ran message {killed} of group g in" in log
    assert f"dead letter: message {killed} of t, group g, after 2 deliveries: the worker's" in log
    workers = [line["pid"] for line in zoo.ledger()]
    assert [int(error.worker.split(":")[1]) for error in dead_record.errors] == workers
    assert len(set(workers)) == 2
    expiries = [e for e in zoo.client.admin.timeline(killed) if e.event == "expire"]
    assert all("its process ended with SIGKILL" in event.note for event in expiries)

    after = zoo.client.publish("t", "fine")
    zoo.committed(1)
    assert zoo.ledger()[-1]["id"] == after
    sh = Shell(zoo.server.url)
    recorded = sh.ok("dlq", "show", "g", killed, "--namespace", "test")
    assert "2 (0 failures, 2 interruptions)" in recorded
    assert "the worker's process ended with SIGKILL while it ran this message" in recorded
    listed = sh.ok("dlq", "list", "g", "--namespace", "test")
    assert "the worker's process ended with SIGKILL" in listed
    shown = json.loads(sh.ok("dlq", "show", "g", killed, "--namespace", "test", "--json"))
    assert (shown["failures"], shown["interruptions"]) == (0, 2)


@pytest.mark.parametrize(
    ("how", "ended"),
    [
        pytest.param("exit", "exit status 9", marks=pytest.mark.campaign),
        pytest.param("kill", "SIGKILL", marks=pytest.mark.campaign),
        ("segfault", "SIGSEGV"),
    ],
)
def test_a_handler_in_a_process_of_its_own_fails_alone(zoo: Zoo, how: str, ended: str) -> None:
    zoo.client.admin.create_topic("apart")
    zoo.start(app=POISON)
    before = zoo.workers()
    poison = zoo.client.publish("apart", how)
    dead(zoo, "p", 1)
    (dead_record,) = zoo.client.admin.dead_letters("p", ids=[poison])
    assert (dead_record.cause, dead_record.attempt) == ("failure", 2)
    assert (dead_record.failures, dead_record.interruptions) == (2, 0)
    assert dead_record.errors[-1].type == "ProcessDied"
    assert dead_record.errors[-1].message.endswith(f"ended with {ended}")
    assert zoo.workers() == before


@pytest.mark.parametrize("durable_server", ["redis-7"], indirect=True)
def test_what_was_leased_beside_the_poison_is_given_back_uncounted(zoo: Zoo) -> None:
    zoo.client.admin.create_topic("beside")
    zoo.start(app=POISON)
    zoo.client.publish_many("beside", ["fine"] * 2000 + ["segfault"] + ["fine"] * 2000)
    zoo.until(lambda: len(zoo.client.admin.dead_letters("b")) == 1)
    zoo.until(lambda: counters(zoo, "b").get("succeed", 0) == 4000)

    (poison,) = zoo.client.admin.dead_letters("b")
    assert (poison.body, poison.attempt) == ("segfault", 2)
    assert counters(zoo, "b")["expire"] == 2, "only the poison's attempts are counted"
    assert counters(zoo, "b")["release"] > 0
    log = zoo.log()
    assert log.count(f"(SIGSEGV) while it ran message {poison.id} of group b in partition") == 2


def counters(zoo: Zoo, group: str) -> dict[str, int]:
    (topic,) = zoo.client.admin.stats("beside").topics
    return next(each for each in topic.groups if each.group == group).counters
