"""/metrics of `rqretry worker` and of `rqretry exporter`: what they say is what happened."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections import defaultdict

import pytest

from rqretry import Client
from rqretry.cli.metrics import render
from rqretry.core.parts import parts_of
from rqretry.protocol.inspect import history
from tests.contract.production.conftest import NAMESPACE, PATIENCE_S, ROOT, Site, until
from tests.edges.otel.collector import Collector
from tests.support.servers import free_port

MESSAGES = 200


def scrape(port: int) -> dict[str, float]:
    """Each sample by its name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return read_samples(answer.read().decode())


def read_samples(text: str) -> dict[str, float]:
    lines = text.splitlines()
    rows = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in rows}


def attempts(outcome: str, group: str = "many") -> str:
    return f'rqretry_worker_attempts_total{{topic="{group}",group="{group}",outcome="{outcome}"}}'


def test_what_the_workers_counted_is_what_the_history_says(site: Site) -> None:
    port = free_port()
    service = site.ready("--processes", "2", "--metrics-port", str(port))
    site.client.publish_many("many", range(MESSAGES))

    def counters() -> dict[str, int]:
        return site.stats("many").counters

    until(lambda: counters().get("succeed") == MESSAGES, say=service.diagnosis)
    known = counters()
    until(lambda: scrape(port).get(attempts("success"), 0) == known["succeed"])
    seen, notes = scrape(port), _notes(site.client, "many")
    assert seen[attempts("failure")] == known["fail"] == MESSAGES // 5
    assert (len(notes["succeed"]), len(notes["fail"])) == (MESSAGES, MESSAGES // 5)
    assert {seen[attempts(other)] for other in ("dead_letter", "lost", "stale")} == {0}
    timed = 'rqretry_worker_attempt_seconds_count{topic="many",group="many"}'
    assert seen[timed] == known["succeed"] + known["fail"]
    assert seen['rqretry_worker_processes{state="working"}'] == 2
    assert (seen["rqretry_worker_ready"], seen["rqretry_worker_live"]) == (1, 1)
    for pid in service.pids():  # what a process has counted outlives it
        os.kill(pid, signal.SIGTERM)
    service.says("starting another")
    until(lambda: scrape(port)['rqretry_worker_processes{state="working"}'] == 2)
    assert scrape(port)[attempts("success")] == MESSAGES


@pytest.mark.campaign
def test_failures_retries_and_deaths_are_counted_as_the_history_has_them(site: Site) -> None:
    port = free_port()
    service = site.ready("--processes", "2", "--metrics-port", str(port))
    site.client.publish_many("mixed", range(100))

    def over() -> bool:
        group = site.stats("mixed")
        return group.counters.get("succeed", 0) + group.dead == 100

    until(over, say=service.diagnosis)
    wanted = {"success": 60, "failure": 60, "dead_letter": 40, "postponed": 20}
    until(
        lambda: all(
            scrape(port).get(attempts(outcome, "mixed")) == count
            for outcome, count in wanted.items()
        ),
        say=lambda: scrape(port),
    )
    seen = scrape(port)
    notes = _notes(site.client, "mixed")
    assert {
        "success": len(notes["succeed"]),
        "failure": sum(",W," in note for note in notes["fail"]),
        "dead_letter": sum(note.endswith(",D") for note in notes["fail"]),
        "postponed": len(notes["release"]),
    } == wanted
    failed = 'rqretry_failed_attempts_total{topic="mixed",group="mixed",reason="ValueError"}'
    assert seen[failed] == 20
    assert seen[failed.replace("ValueError", "KeyError")] == 60
    timed = 'rqretry_worker_attempt_seconds_count{topic="mixed",group="mixed"}'
    assert seen[timed] == len(notes["lease"]) == sum(wanted.values())
    sent = 'rqretry_worker_published_total{topic="done",result="ok"}'
    assert seen[sent] == len(_notes(site.client, "done")["publish"]) == 60
    labels = f'namespace="{NAMESPACE}",topic="mixed",group="mixed"'
    exported = read_samples(render(site.client.admin.stats(), evicts=False))
    for verb in ("succeed", "fail", "lease", "release"):
        assert exported[f'rqretry_verbs_total{{{labels},verb="{verb}"}}'] == len(notes[verb])
    assert exported[f'rqretry_verbs_total{{{labels},verb="dead"}}'] == wanted["dead_letter"]
    assert exported[f'rqretry_messages{{{labels},state="dead"}}'] == wanted["dead_letter"]


@pytest.mark.parametrize("when", ["idle", pytest.param("busy", marks=pytest.mark.campaign)])
def test_after_an_outage_the_metrics_are_what_the_history_says(site: Site, when: str) -> None:
    port = free_port()
    service = site.ready("--processes", "2", "--metrics-port", str(port))
    first = MESSAGES if when == "idle" else 20 * MESSAGES

    def committed() -> int:
        return site.stats("many").counters.get("succeed", 0)

    site.client.publish_many("many", range(first))
    until(lambda: committed() >= (first if when == "idle" else 1), say=service.diagnosis)
    site.server.kill()
    service.becomes(503)
    unresponsive = scrape(port)
    assert (unresponsive["rqretry_worker_ready"], unresponsive["rqretry_worker_live"]) == (0, 1)
    site.server.start()
    service.becomes(200)
    assert scrape(port)["rqretry_worker_ready"] == 1
    site.client.publish_many("many", range(MESSAGES))
    until(lambda: committed() == first + MESSAGES, 2 * PATIENCE_S, service.diagnosis)

    until(lambda: scrape(port).get(attempts("success"), 0) == committed())
    seen, notes = scrape(port), _notes(site.client, "many")
    assert len(notes["succeed"]) == first + MESSAGES
    assert seen[attempts("failure")] == len(notes["fail"])
    assert seen[attempts("stale")] == 0


def test_spans_are_counted_by_what_became_of_them(site: Site) -> None:
    port = free_port()
    with Collector() as collector:
        service = site.ready("--metrics-port", str(port), "--otlp", collector.http)
        site.client.publish_many("many", range(MESSAGES))
        until(lambda: site.stats("many").counters.get("succeed") == MESSAGES, say=service.diagnosis)
        ended = MESSAGES + MESSAGES // 5
        for pid in service.pids():  # what it still holds it exports at its end, and tells of
            os.kill(pid, signal.SIGTERM)
        until(lambda: scrape(port).get(spans("exported")) == ended, say=service.diagnosis)
        seen = scrape(port)
        assert (seen[spans("dropped")], seen[spans("refused")]) == (0, 0)
        collector.wait(ended)


def spans(result: str) -> str:
    return f'rqretry_worker_spans_total{{result="{result}"}}'


def test_scaled_to_zero_the_exporter_still_reports_the_true_lag(site: Site) -> None:
    port = free_port()
    parts_of(site.client).store.perform(parts_of(site.client).catalog.join("g", "push", ["t"]))
    site.client.publish_many("t", range(7))
    request_parts = [
        "exporter",
        "--port",
        str(port),
        "--url",
        site.server.url,
        "--namespace",
        NAMESPACE,
    ]
    exporter = subprocess.Popen([sys.executable, "-m", "rqretry", *request_parts], cwd=ROOT)
    try:
        until(lambda: _answers(port))
        seen = scrape(port)
    finally:
        exporter.terminate()
        exporter.wait(10)
    labels = f'{{namespace="{NAMESPACE}",topic="t",group="g"}}'
    assert seen[f"rqretry_due_messages{labels}"] == 7
    assert seen[f"rqretry_workers{labels}"] == 0
    assert seen[f'rqretry_oldest_age_seconds{labels[:-1]},state="ready"}}'] > 0


def _answers(port: int) -> bool:
    try:
        scrape(port)
    except OSError:
        return False
    return True


def _notes(client: Client, topic: str) -> dict[str, list[str]]:
    """What the history notes of each message, by verb."""
    parts_of(client).store.perform(parts_of(client).catalog.topics.get(topic))
    notes: dict[str, list[str]] = defaultdict(list)
    start = "-"
    while True:
        page = parts_of(client).store.run(
            history(parts_of(client).catalog.partition(topic, 0), start=start, count=500)
        )
        for _, fields in page:
            ids = fields["i"].split(b" ")
            shown = fields["d"].decode().split(" ")
            notes[fields["e"].decode()] += shown if len(shown) == len(ids) else [""] * len(ids)
        if len(page) < 500:
            return notes
        start = f"({page[-1][0]}"
