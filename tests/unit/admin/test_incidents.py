"""The one judgement of what somebody on call must see."""

import re
from pathlib import Path
from typing import Any

import pytest

from rqretry.admin import incidents as judged
from rqretry.admin.incidents import ALERTS, Earlier, Moment, incidents, moment
from rqretry.admin.results import WorkerInfo
from rqretry.admin.views import Blocker, GroupStats, Stats, TopicStats, Waiting

RULES = (Path(__file__).parents[3] / "deploy/alerts.yaml").read_text()
FINE: dict[str, Any] = {
    "group": "g",
    "kind": "push",
    "ready": 0,
    "retry": 0,
    "inflight": 0,
    "waiting": (),
    "dead": 0,
    "oldest_age_s": None,
    "paused": False,
    "workers": 1,
}
TOPIC: dict[str, Any] = {"topic": "t", "partitions": 1, "stored": 0, "scheduled": 0, "backlog": 0}
BLOCKER = Blocker("m", None, 0, 4, 301.0, 7)
COUNTED = {"succeed": 5, "fail": 11, "dead": 2, "lease": 30, "expire": 11}


def names(topic: dict[str, Any], *groups: dict[str, Any], **given: Any) -> list[str]:
    earlier = given.pop("earlier", None)
    evicts = given.pop("evicts", None)
    rows = tuple(GroupStats(**FINE | group) for group in groups)
    stats = Stats("n", (TopicStats(**TOPIC | topic, groups=rows),), **given)
    return [one.name for one in incidents(stats, evicts=evicts, earlier=earlier)]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({}, []),
        ({"ready": 3}, []),
        ({"ready": 3, "workers": 0}, ["GroupWithoutWorker"]),
        ({"ready": 3, "workers": 0, "kind": "simple"}, []),
        ({"workers": 0}, []),
        ({"retry": 3, "paused": True}, ["GroupPaused"]),
        ({"ready": 3, "oldest_age_s": 901.0}, ["BacklogOld"]),
        ({"ready": 3, "oldest_age_s": 901.0, "paused": True}, ["GroupPaused"]),
        ({"ordered": True, "blockers": (BLOCKER,)}, ["MessageGroupBlocked"]),
    ],
)
def test_what_a_group_shows_at_once(group: dict[str, Any], expected: list[str]) -> None:
    assert names({}, group) == expected


@pytest.mark.parametrize(
    ("before", "seconds", "expected"),
    [
        (Moment(**COUNTED, due=200), 600, []),
        (Moment(**COUNTED | {"dead": 1}, due=200), 600, ["DeadLettersGrow"]),
        (Moment(**COUNTED | {"fail": 0, "succeed": 4}, due=200), 600, []),
        (Moment(**COUNTED | {"fail": 0}, due=200), 600, ["EverythingFails"]),
        (Moment(**COUNTED | {"expire": 0}, due=200), 600, ["LeasesExpire"]),
        (Moment(**COUNTED, due=199), 600, ["LagGrows"]),
        (Moment(**COUNTED, due=199), 60, []),
    ],
)
def test_what_a_group_shows_by_its_change(
    before: Moment, seconds: float, expected: list[str]
) -> None:
    earlier = Earlier(seconds, {("t", "g"): before})
    assert names({}, {"ready": 200, "counters": COUNTED}, earlier=earlier) == expected


def test_retries_that_wait_while_nothing_succeeds_are_everything_failing() -> None:
    group = {"waiting": (Waiting(3, 11, 1),), "counters": COUNTED}
    same = moment(GroupStats(**FINE | group))
    assert names({}, group, earlier=Earlier(300, {("t", "g"): same})) == ["EverythingFails"]
    assert names({}, group, earlier=Earlier(299, {("t", "g"): same})) == []


def test_leases_of_the_last_minutes_are_somebody_who_receives() -> None:
    group = {"ready": 3, "workers": 0, "counters": COUNTED}
    before = moment(GroupStats(**FINE | group))
    assert names({}, group, earlier=Earlier(60, {("t", "g"): before})) == ["GroupWithoutWorker"]
    assert names({}, group, earlier=Earlier(60, {("t", "g"): before._replace(lease=29)})) == []


def test_what_concerns_topics_and_the_server_is_seen_and_what_pages_is_first() -> None:
    full = {"stored": 91, "max_messages": 100, "backlog": 4}
    server = {"used_memory": 91, "max_memory": 100, "parked_transactions": 1, "refused": ("no",)}
    assert names(full, evicts="evicts", **server) == [
        *("RedisEvicts", "RedisNearlyFull", "TopicNearlyFull", "Unreadable"),
        *("TopicWithoutGroup", "TransactionParked"),
    ]
    assert names({"stored": 90, "max_messages": 100}, {}, used_memory=90, max_memory=100) == []


def test_a_worker_that_stands_still_is_seen() -> None:
    found = [WorkerInfo("w1", ("g",), ("t",), 1, 1), WorkerInfo("w2", (), (), 2, 1, blocked_s=61)]
    (one,) = incidents(Stats("n", ()), workers=found)
    assert (one.name, one.severity) == ("WorkerStuck", "page")
    assert one.text == "the event loop of w2 has stood still for 1 m 1 s"


def test_the_alert_rules_have_the_same_names_severities_and_thresholds() -> None:
    rules = dict(re.findall(r"alert: Rqretry(\w+)((?:\n(?! +- alert).*)*)", RULES))
    assert ALERTS.keys() <= rules.keys()
    for name, severity in ALERTS.items():
        assert f"{{severity: {severity}}}" in rules[name], name
    for name, constant in {
        "LagGrows": "LAG",
        "BacklogOld": "BACKLOG_OLD_S",
        "MessageGroupBlocked": "BLOCKED_S",
        "EverythingFails": "FAILED",
        "LeasesExpire": "EXPIRED",
        "RedisNearlyFull": "NEARLY_FULL",
        "TopicNearlyFull": "NEARLY_FULL",
    }.items():
        assert f"> {getattr(judged, constant)}" in rules[name], name
