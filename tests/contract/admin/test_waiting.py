"""What a group has not finished with: by state, page by page, and why; and the reasons counted."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rqretry import Client
from rqretry.admin.messages import MessageConditions
from rqretry.admin.results import ListedMessage, MessagePage, Reason, Reasons
from rqretry.core.errors import GroupNotFound, InvalidArgument
from rqretry.core.parts import parts_of
from rqretry.protocol import transaction
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.operate import redrive
from tests.contract.admin.bench import Bench
from tests.contract.admin.conftest import NAMESPACE


def park(client: Client, topic: str) -> tuple[str, str]:
    """A message of a transaction that no checker could decide: its id, and the transaction."""
    tx = client.transaction(topic, check_after=0.01, max_checks=1)
    id_, keys = tx.publish("half", tag="gold"), NamespaceKeys(NAMESPACE)
    end = time.monotonic() + 10
    while not (claimed := parts_of(client).store.run(_claim(keys, topic))).records:
        assert time.monotonic() < end
    (record,) = claimed.records
    command = transaction.defer(keys, tx.id, topic, claim=record.claim, reason="who knows")
    parts_of(client).store.run(command)
    return str(id_), tx.id


def _claim(keys: NamespaceKeys, group: str) -> Any:
    return transaction.claim(keys, [group], lease_ms=1000, limit=1)


def one(page: MessagePage) -> ListedMessage:
    """The only message of a page that is the last one."""
    (found,) = page.messages
    assert page.next is None
    return found


def test_each_message_is_listed_in_its_state_with_why_it_waits(bench: Bench) -> None:
    bench.client.admin.create_topic("t")
    bench.group(ordered=True)
    bench.appear("w")
    messages = bench.admin.messages
    failed, held, behind = bench.publish(1, 2, 3, message_group="m")
    ready, other = bench.publish(4, message_group="n"), bench.publish(5, message_group="o")
    bench.fail(bench.lease(1), "card of 17 declined")
    waits = one(messages("g", state="waiting_retry"))
    assert (waits.id, waits.attempt, waits.why) == (failed, 2, "card of 17 declined")
    assert waits.since_ms is not None
    assert waits.due_ms == waits.since_ms + 1000  # the interval of an ordered group
    blocked = messages("g", state="blocked").messages
    assert [(m.id, m.holder, m.message_group) for m in blocked] == [
        (held, failed, "m"), (behind, failed, "m"),
    ]  # fmt: skip
    bench.lease(1)
    inflight = one(messages("g", state="in_flight"))
    assert (inflight.id, inflight.holder, inflight.why) == (ready[0], "w", "")
    assert inflight.since_ms is not None and inflight.due_ms == inflight.since_ms + 60_000
    assert one(messages("g", state="ready")).id == other[0]
    later = bench.publish(6, delay=30)[0]
    assert one(messages("g", state="scheduled")).why.startswith("published with a delay, 30 s")
    assert one(messages("g", state="scheduled")).id == later
    half, tx = park(bench.client, "t")
    parked = one(messages("g", state="parked"))
    assert (parked.id, parked.holder) == (half, tx)
    assert parked.why == "its transaction is parked: who knows"
    states = [m.state for m in messages("g").messages]
    assert states == [
        "inflight", "waiting_retry", "ready", "blocked", "blocked", "scheduled", "parked",
    ]  # fmt: skip
    bench.client.admin.rollback_transaction(tx)


def test_a_date_of_the_publisher_is_named_as_such(bench: Bench) -> None:
    bench.group()
    bench.client.publish("t", 1, deliver_at=datetime.now(UTC) + timedelta(hours=1))
    why = one(bench.admin.messages("g")).why
    assert why.startswith("published for a date, ")
    assert why.endswith(" after it was published, by the publisher's clock")


def test_all_conditions_select_and_what_a_group_does_not_take_is_not_its(bench: Bench) -> None:
    bench.group(tags="gold")
    chosen = bench.client.publish("t", 1, id="order:1", tag="gold", keys=["k"])
    bench.client.publish("t", 2, tag="lead")
    bench.client.publish("t", 3, tag="gold", delay=60)
    bench.client.publish("t", 4, tag="lead", delay=60)
    bench.fail(bench.lease(), "no\x1b[2Jcarrier 'x'", delay_ms=60_000)
    messages = bench.admin.messages
    assert len(messages("g").messages) == 2
    assert [m.tag for m in messages("g", state="scheduled").messages] == ["gold"]
    found = one(messages("g", key="k"))
    assert (found.id, found.tag, found.keys) == (chosen, "gold", ("k",))
    assert found.published_ms is not None  # from the message, since the id has no time
    given: tuple[MessageConditions, ...] = (
        {"state": "retry"}, {"error": "carrier"}, {"fingerprint": found.fingerprint},
        {"state": "waiting_retry", "tag": "gold", "topic": "t"},
    )  # fmt: skip
    for some in given:
        assert one(messages("g", **some)) == found, some
    given = ({"error": "other"}, {"fingerprint": "0"}, {"tag": "lead"}, {"older_than": "1h"})
    for none in given:
        assert messages("g", **none).messages == (), none
    (kinds,) = bench.admin.reasons()
    assert kinds == Reasons("t", "g", 1, 1, (Reason(found.fingerprint, found.why, 1, chosen),))


def test_pages_of_many_partitions_name_each_message_once(bench: Bench) -> None:
    bench.client.admin.create_topic("t", partitions=3)
    bench.group()
    sent = {str(id_) for id_ in bench.client.publish_many("t", range(60))}
    for partition in range(3):
        bench.fail(bench.lease(5, partition=partition), delay_ms=60_000, partition=partition)
        bench.lease(2, partition=partition)
    found: list[str] = []
    after, pages = None, 0
    while pages == 0 or after:
        page = bench.admin.messages("g", after=after, count=7)
        assert len(page.messages) <= 7
        found += [message.id for message in page.messages]
        after, pages = page.next, pages + 1
    assert len(found) == 60
    assert set(found) == sent
    page = bench.admin.messages("g", state="ready", count=7)
    with pytest.raises(InvalidArgument, match="is of a page of another state"):
        bench.admin.messages("g", state="blocked", after=page.next)


def test_a_page_looks_at_so_many_however_few_it_selects(bench: Bench) -> None:
    bench.group()
    bench.client.publish_many("t", [None] * 10_600)
    bench.client.publish("t", 1, tag="gold")
    page = bench.admin.messages("g", tag="gold")
    assert (page.messages, page.looked) == ((), 10_000)
    rest = bench.admin.messages("g", tag="gold", after=page.next)
    assert (one(rest).tag, rest.looked) == ("gold", 601)


def test_the_commonest_reasons_of_what_waits_with_one_message_each(bench: Bench) -> None:
    bench.client.admin.create_topic("t", partitions=2)
    bench.group()
    assert bench.admin.reasons() == []
    bench.client.publish_many("t", range(40))
    for partition in range(2):
        for reason, count in (("disk of 3 is full", 4), ("refused", 3), ("odd", 2), ("rare", 1)):
            rows = bench.lease(count, partition=partition)
            bench.fail(rows, reason, delay_ms=60_000, partition=partition)
    (found,) = bench.admin.reasons(group="g")
    assert (found.topic, found.group, found.waiting, found.looked) == ("t", "g", 20, 20)
    assert [(kind.error, kind.count) for kind in found.errors] == [
        ("disk of 3 is full", 8), ("refused", 6), ("odd", 4),
    ]  # fmt: skip
    for kind in found.errors:
        assert bench.admin.messages("g", fingerprint=kind.fingerprint).looked == 40
        assert bench.admin.message(kind.sample_id).states[0].errors[-1].message == kind.error


def test_what_was_sent_back_and_what_cannot_be_read_are_listed(bench: Bench) -> None:
    bench.group()
    (id_,) = bench.dead_letter(1)
    parts_of(bench.client).store.run(redrive(bench.keys(), [id_], actor="ops"))
    assert one(bench.admin.messages("g", error="redriven")).id == id_
    damaged, keys = bench.client.publish("t", 2, id="own"), bench.keys()
    body = bench.redis.hget(keys.partition.bodies, damaged)
    for key, value in (
        (keys.partition.bodies, b"\xc1"),
        (keys.attempts, b"?"),
        (keys.failures, b"x"),
    ):
        bench.redis.hset(key, damaged, value)
    found = bench.admin.messages("g").messages[1]
    assert (found.id, found.attempt, found.why, found.published_ms) == (damaged, 1, "", None)
    bench.redis.hdel(keys.attempts, damaged)
    bench.redis.hdel(keys.failures, damaged)
    bench.redis.hset(keys.partition.bodies, damaged, body)


def test_what_a_caller_got_wrong(bench: Bench) -> None:
    bench.group()
    for given, sentence in (
        ({"state": "dead"}, "state 'dead' is not one of inflight, waiting_retry, ready"),
        ({"after": "bad"}, "after 'bad' is not what a page named as its next one"),
        ({"after": "WzFd"}, "after 'WzFd' is not what a page named as its next one"),
        ({"after": "WyJyZWFkeSIsInQiLDAsMCwiIiwiMCIsIlx1ZDgwMCJd"}, "after 'WyJyZWFkeSIs"),
        ({"count": 501}, "count 501"),
        ({"older_than": "soon"}, "older_than 'soon'"),
        ({"color": 1}, "messages 'color' is not one of"),
    ):
        with pytest.raises(InvalidArgument) as raised:
            bench.admin.messages("g", **given)
        assert str(raised.value).startswith(sentence)
    with pytest.raises(GroupNotFound):
        bench.admin.messages("nobody")


def test_ages_are_of_whatever_is_not_done(bench: Bench) -> None:
    bench.group(ordered=True)
    (first,) = bench.publish(1, message_group="m", id="own:1")
    time.sleep(0.02)
    bench.publish(2, message_group="m")
    bench.fail(bench.lease())
    bench.appear("w")
    (group,) = bench.admin.stats().groups
    ages = group.oldest_ages_s
    assert ages.keys() == {"waiting_retry", "blocked"}
    assert group.oldest_age_s == ages["waiting_retry"] > ages["blocked"] > 0
    assert (group.ready, group.blocked, group.blockers[0].id) == (1, 1, first)
    _, tx = park(bench.client, "t")
    stats = bench.admin.stats()
    assert stats.parked_age_s is not None and stats.parked_age_s >= 0
    bench.client.admin.rollback_transaction(tx)
    assert bench.admin.stats().parked_age_s is None
