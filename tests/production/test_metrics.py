"""/metrics of `rqretry worker` and of `rqretry exporter`: what they say is what happened."""

import os
import signal
import subprocess
import sys
import urllib.request

from rqretry import Client
from rqretry.commands.administering import history
from tests.production.conftest import NAMESPACE, ROOT, Site, free_port, until

MESSAGES = 200


def scrape(port: int) -> dict[str, float]:
    """Each sample by its name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in rows}


def attempts(outcome: str) -> str:
    return f'rqretry_worker_attempts_total{{topic="many",group="many",outcome="{outcome}"}}'


def test_what_the_workers_counted_is_what_the_history_says(site: Site) -> None:
    port = free_port()
    service = site.ready("--processes", "2", "--metrics-port", str(port))
    site.client.publish_many("many", range(MESSAGES))

    def counters() -> dict[str, int]:
        return site.stats("many").counters

    until(lambda: counters().get("succeed") == MESSAGES, say=service.told)
    known = counters()
    until(lambda: scrape(port).get(attempts("success"), 0) == known["succeed"])
    seen, verbs = scrape(port), _history(site.client)
    assert seen[attempts("failure")] == known["fail"] == MESSAGES // 5
    assert (verbs.count("succeed"), verbs.count("fail")) == (MESSAGES, MESSAGES // 5)
    timed = 'rqretry_worker_attempt_seconds_count{topic="many",group="many"}'
    assert seen[timed] == known["succeed"] + known["fail"]
    assert seen['rqretry_worker_processes{state="working"}'] == 2
    assert (seen["rqretry_worker_ready"], seen["rqretry_worker_live"]) == (1, 1)
    for pid in service.pids():  # what a process has counted outlives it
        os.kill(pid, signal.SIGTERM)
    service.says("starting another")
    until(lambda: scrape(port)['rqretry_worker_processes{state="working"}'] == 2)
    assert scrape(port)[attempts("success")] == MESSAGES


def test_scaled_to_zero_the_exporter_still_reports_the_true_lag(site: Site) -> None:
    port = free_port()
    site.client.store.perform(site.client.catalog.join("g", "push", ["t"]))
    site.client.publish_many("t", range(7))
    words = ["exporter", "--port", str(port), "--url", site.server.url, "--namespace", NAMESPACE]
    exporter = subprocess.Popen([sys.executable, "-m", "rqretry", *words], cwd=ROOT)
    try:
        until(lambda: _answers(port))
        seen = scrape(port)
    finally:
        exporter.terminate()
        exporter.wait(10)
    labels = f'{{namespace="{NAMESPACE}",topic="t",group="g"}}'
    assert seen[f"rqretry_due_messages{labels}"] == 7
    assert seen[f"rqretry_workers{labels}"] == 0
    assert seen[f"rqretry_oldest_age_seconds{labels}"] > 0


def _answers(port: int) -> bool:
    try:
        scrape(port)
    except OSError:
        return False
    return True


def _history(client: Client) -> list[str]:
    """The verb of each line of the history."""
    client.store.perform(client.catalog.topic("many"))
    verbs: list[str] = []
    start = "-"
    while True:
        page = client.store.run(
            history(client.catalog.partition("many", 0), start=start, count=500)
        )
        for _, fields in page:
            verbs += [fields["e"].decode()] * len(fields["i"].split(b" "))
        if len(page) < 500:
            return verbs
        start = f"({page[-1][0]}"
