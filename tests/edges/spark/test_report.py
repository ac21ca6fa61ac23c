"""report: what became of messages, counted exactly, from an archive and live, on a safe page."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rqretry import ConfigError, InvalidArgument, OutgoingMessage
from rqretry.cli.pipeline import pipeline as command
from rqretry.core.parts import parts_of
from rqretry.demo import claims
from rqretry.demo.book import BookKeys, read_ledger
from rqretry.demo.flights import load, sample_size
from rqretry.demo.jobs import report_summary
from rqretry.demo.proof import Evidence, compare, prove
from rqretry.demo.topology import ARRIVALS, BOOK_GROUP, CLAIMS_GROUP, FLIGHTS, Progress
from rqretry.spark import ReportSummary, archive, report
from rqretry.spark.report_changes import compared
from rqretry.spark.report_page import page
from rqretry.testing import Lab
from tests.edges.spark.archives import EVIL, START, Step, written
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def reported(pipeline: Pipeline, tmp_path: Path, *steps: Step, **more: Any) -> ReportSummary:
    return report(pipeline.spark, str(tmp_path / "out"), written(tmp_path, *steps), **more)


@pytest.mark.campaign
def test_every_table_counts_a_small_history_exactly(pipeline: Pipeline, tmp_path: Path) -> None:
    found = reported(
        pipeline,
        tmp_path,
        *(
            (0, "a", "publish", None, None, "stored"),
            (0, "b", "publish", None, None, "stored"),
            (1, "a", "lease", "g", 1, "inflight"),
            (3, "a", "succeed", "g", 1, "committed"),
            (4, "b", "deliver", None, None, "ready"),
            (9, "b", "lease", "g", 1, "inflight"),
            (10, "b", "fail", "g", 1, "waiting_retry"),
            (20, "b", "lease", "g", 2, "inflight"),
            (24, "b", "fail", "g", 2, "dead"),
            (30, "b", "redrive", "g", None, "ready"),
            (31, "b", "lease", "g", 1, "inflight"),
            (34, "b", "succeed", "g", 1, "committed"),
            (40, "c", "lease", "g", 1, "inflight"),
        ),
        hourly_cost=1800,
    )
    (group,) = found.groups
    assert (group["topic"], group["group"]) == ("7", "g")
    assert (group["messages"], group["deliveries"], group["committed"]) == (3, 5, 2)
    assert (group["died"], group["dead"]) == (1, 0)
    assert group["amplification"] == pytest.approx(5 / 3)
    assert (group["handler_seconds"], group["wasted_seconds"]) == (2, 1)
    assert group["held_seconds"] == 10
    counts = ("attempt", "deliveries", "succeeded", "failed")
    assert [tuple(row[name] for name in counts) for row in found.attempts] == [
        (1, 4, 2, 1),
        (2, 1, 0, 1),
    ]  # fmt: skip
    times = {row["measure"]: row for row in found.times}
    assert (times["waiting"]["count"], times["waiting"]["p50"], times["waiting"]["longest"]) == (
        2, 1, 5,
    )  # fmt: skip
    assert (times["to success"]["p50"], times["to success"]["longest"]) == (3, 30)
    seconds = {name: (times[name]["count"], times[name]["longest"]) for name in times}
    assert seconds["handler"] == (4, 0.5)
    assert seconds["buffer"] == (4, 0.25)
    assert seconds["held"] == (4, 4)
    assert seconds["queue"] == (3, 5)  # of a and b, and of b after its redrive
    assert found.losses == []
    (cluster,) = found.dead
    assert (cluster["died"], cluster["dead"], cluster["ids"]) == (1, 0, ["b"])
    assert (cluster["error_type"], cluster["example"]) == ("ValueError", EVIL)
    (cost,) = found.costs
    spent = ("retries", "recovered", "in_vain", "retry_seconds", "cost", "cost_per_recovered")
    assert tuple(cost[name] for name in spent) == (2, 1, 0, 1, 0.5, 0.5)
    (hour,) = found.hours
    assert (hour["hour"], hour["deliveries"], hour["failed"]) == (START, 5, 2)
    (failing,) = found.dependencies
    assert (failing["dependency"], failing["failed"], failing["messages"]) == ("ValueError", 2, 1)
    assert hour["ids"] == failing["ids"] == times["to success"]["ids"] == ["b"]


@pytest.mark.campaign
def test_a_failure_is_laid_to_the_host_that_its_error_names(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    texts = {
        "GET https://u:p@api.example:8443/v1 answered 503": "api.example:8443",
        "HTTPConnectionPool(host='bank', port=80): refused": "bank",
        "cannot connect to db1.internal:5432": "db1.internal:5432",
        "no such claim: 7.5": "ValueError",
    }
    steps: list[Step] = []
    for number, text in enumerate(texts):
        steps.append((2 * number, str(number), "lease", "g", 1, "inflight"))
        steps.append((2 * number + 1, str(number), "fail", "g", 1, "dead", text))
    found = {row["ids"][0]: row for row in reported(pipeline, tmp_path, *steps).dependencies}
    names = [found[str(number)]["dependency"] for number in range(len(texts))]
    assert names == list(texts.values())
    assert "p@" not in str(names)


@pytest.mark.campaign
def test_a_time_is_compared_with_as_long_a_time_before(pipeline: Pipeline, tmp_path: Path) -> None:
    steps: list[Step] = [
        (1, "a", "lease", "g", 1, "inflight"),
        (2, "a", "fail", "g", 1, "dead"),
        (11, "b", "lease", "g", 1, "inflight"),
        (12, "b", "succeed", "g", 1, "committed"),
        (21, "c", "lease", "g", 1, "inflight"),
        (22, "c", "fail", "g", 1, "dead"),
    ]
    times = {name: START + timedelta(seconds=at) for name, at in (("since", 10), ("until", 20))}
    found = reported(pipeline, tmp_path, *steps, **times, compare=True)
    assert [(row["error_type"], row["died"], row["died_before"]) for row in found.changes] == [
        ("ValueError", 0, 1),
        (None, 0, 1),  # less was wasted, too
    ]
    assert "What got worse" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.campaign
def test_the_page_is_one_file_and_no_error_message_becomes_markup(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    dead: list[Step] = [
        (1, "a", "lease", "g", 1, "inflight"),
        (2, "a", "fail", "g", 1, "dead"),
    ]
    reported(pipeline, tmp_path, *dead)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more" in page
    assert "http" not in page
    assert page.count("<svg") >= 3
    for name in ("groups", "attempts", "times", "dead"):
        assert pq.read_table(tmp_path / "out" / f"{name}.parquet").num_rows > 0 or name == "times"


@pytest.mark.campaign
def test_the_report_of_the_demo_has_its_dead_letters_and_its_successes_by_attempt(
    pipeline: Pipeline, lab_redis: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo's app on the lab's clock; arrivals come so late that claims need many attempts."""
    monkeypatch.setattr(claims, "_books", [])
    lab, flights = lab_redis, [f for f in load(sample_size) if f.expected != "committed"]
    flights += load(24)
    lab.app(claims.app)
    lab.publish_many(FLIGHTS, [OutgoingMessage(body=f.claim, id=f.id) for f in flights])
    lab.run_until_idle()
    for block in range(0, len(flights), 5):
        lab.advance("150ms")
        arrivals = [f.arrival for f in flights[block : block + 5] if f.arrival]
        lab.publish_many(ARRIVALS, arrivals)
    lab.advance("20s")
    proof = prove(flights, evidence(lab))
    assert (proof.lost, proof.wrong) == ([], [])
    assert len(proof.succeeded) >= 3
    where: dict[str, Any] = {"url": lab.url, "namespace": lab.namespace}
    archive(pipeline.spark, str(tmp_path / "history"), **where)

    kept = report(pipeline.spark, str(tmp_path / "out"), str(tmp_path / "history"), FLIGHTS)
    live = report(pipeline.spark, str(tmp_path / "live"), **where, topics=FLIGHTS)

    stated = report_summary(kept, tmp_path / "out" / "report.html")
    assert compare(proof, stated) == []
    assert stated.dead == {"cancelled": 12, "no arrival delay": 14}
    assert len({row["fingerprint"] for row in kept.dead}) == 2
    (group,) = kept.groups
    deliveries = sum(n * count for n, count in proof.groups[CLAIMS_GROUP].attempts.items())
    assert (group["messages"], group["deliveries"]) == (len(flights), deliveries)
    assert (group["committed"], group["dead"]) == (len(flights) - 26, 26)
    assert (live.groups, live.attempts, live.dead) == (kept.groups, kept.attempts, kept.dead)


def evidence(lab: Lab) -> Evidence:
    """What the demo would have read from Redis at this moment."""
    client, keys = lab.client, BookKeys(lab.namespace)
    groups = [
        next(client.admin.stats(topic, group).groups)
        for topic, group in ((FLIGHTS, CLAIMS_GROUP), (ARRIVALS, BOOK_GROUP))
    ]
    booked = parts_of(client).store.perform(read_ledger(keys.booked))
    return Evidence(
        settled=parts_of(client).store.perform(read_ledger(keys.settled)),
        booked=booked,
        dead_claims=client.admin.dead_letters(CLAIMS_GROUP, bodies=False),
        dead_arrivals=client.admin.dead_letters(BOOK_GROUP, bodies=False),
        published=(26 + len(booked), len(booked)),
        last=Progress(*groups),
    )


@pytest.mark.campaign
def test_a_folder_that_is_no_archive_is_one_sentence(pipeline: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no archive in"):
        report(pipeline.spark, str(tmp_path / "out"), str(tmp_path / "none"))


@pytest.mark.parametrize("request_parts", [[], ["--live", "--from", "x"]])
def test_the_command_takes_an_archive_or_the_live_history(request_parts: list[str]) -> None:
    answer = CliRunner().invoke(command, ["report", "--out", "x", *request_parts])
    assert answer.exit_code != 0
    assert "give either --from FOLDER or --live" in answer.output


@pytest.mark.campaign
def test_the_command_prints_the_tables_as_json(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.spark, "stop", lambda: None)  # it is that of all tests
    monkeypatch.setattr("rqretry.spark.sessions.session", lambda *_: pipeline.spark)
    pipeline.client.publish("t", 1)
    group = pipeline.client.simple_consumer("t", group="g", create_group=True)
    group.ack(group.receive(max_messages=1, invisible_duration=60, wait=0))
    request_parts = ["--live", "--out", str(tmp_path / "out"), "--json", "--url", pipeline.url]
    answer = CliRunner().invoke(
        command, ["report", *request_parts, "--namespace", pipeline.namespace]
    )
    assert answer.exit_code == 0, answer.output
    (row,) = json.loads(answer.stdout)["groups"]
    assert (row["group"], row["deliveries"], row["committed"]) == ("g", 1, 1)


def test_the_page_answers_in_order_and_its_charts_lead_to_message_ids() -> None:
    where, ids = {"topic": "t", "group": "g"}, ["a/b"]
    evil = f"$x$ {EVIL}"
    tables: dict[str, list[dict[str, Any]]] = {
        "dead": [{**where, "error_type": evil, "example": evil, "died": 2, "ids": ids}],
        "changes": [
            {**where, "error_type": evil, "fingerprint": "f", "died": 2, "died_before": 1},
        ],
        "costs": [{**where, "retries": 5, "retry_seconds": 7.25, "cost": 3.5}],
        "hours": [{**where, "hour": START, "failed": 4, "ids": ids}],
        "dependencies": [{**where, "dependency": "db:1", "failed": 4, "ids": ids}],
        "times": [
            {**where, "measure": "to success", "ids": ids}
            | dict.fromkeys(("p50", "p90", "p95", "p99", "longest"), 0.0)
        ],
        "groups": [{**where, "handler_seconds": 9.0, "wasted_seconds": 2.0}],
        "attempts": [{**where, "attempt": 1, "succeeded": 1, "deliveries": 9}],
    }
    text = page(tables, "here")
    assert re.findall("<h2>(.*?)</h2>", text) == [
        "What died, and why", "What got worse", "What retrying cost",
        "Which hour, and which dependency", "How long customers waited",
        "Groups, the slowest first", "Success by attempt",
    ]  # fmt: skip
    assert text.count('<svg class="chart"') == len(tables)
    assert "5 retries, 7.2 s, 3.50" in text
    for name in list(tables)[:6]:
        assert f'href="#{name}-1"' in text
        assert f'<tr id="{name}-1">' in text
    assert "<script" not in text
    assert "http" not in text
    linked = page(tables, "here", "http://board")
    assert linked.count('<a href="http://board/message/a%2Fb">a/b</a>') == 4
    assert "Not compared" in page({"dead": []}, "here")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"hourly_cost": -1}, "hourly_cost -1 must be a number that is not negative"),
        ({"hourly_cost": float("nan")}, "hourly_cost nan must be"),
        ({"dashboard": "javascript:x"}, "dashboard 'javascript:x' must be a URL such as"),
    ],
)
def test_a_cost_or_dashboard_that_is_none_is_refused(given: dict[str, Any], shown: str) -> None:
    no_spark: Any = None
    with pytest.raises(InvalidArgument, match=shown):
        report(no_spark, "out", "archive", **given)


def test_what_got_worse_comes_first_and_what_is_new_was_nothing_before() -> None:
    def tables(**died: int) -> dict[str, pa.Table]:
        group = {"topic": "t", "group": "g", "died": sum(died.values()), "wasted_seconds": None}
        dead = [
            {"topic": "t", "group": "g", "error_type": name, "fingerprint": name, "died": count}
            for name, count in died.items()
        ]
        groups = [group | {"deliveries": 100, "messages": 90}]
        return {"groups": pa.Table.from_pylist(groups), "dead": pa.Table.from_pylist(dead)}

    rows = compared(tables(new=5, less=1), tables(less=4)).to_pylist()
    names = ("error_type", "died", "died_before", "deliveries", "deliveries_before")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("new", 5, 0, None, None),
        (None, 6, 4, 100, 100),
        ("less", 1, 4, None, None),
    ]


def test_a_comparison_needs_a_time() -> None:
    arguments = ["report", "--out", "x", "--from", "x", "--compare", "--until", "2026-11-21T00:00Z"]
    answer = CliRunner().invoke(command, arguments)
    assert "--compare needs a time to compare: give --since and --until" in answer.output
