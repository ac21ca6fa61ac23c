"""The dashboard and the alert rules ask for metrics that exist, and runbooks that are written."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import rqretry.cli.metrics
import rqretry.gateway.metrics
import rqretry.observability.prometheus_text
import rqretry.supervision.metrics_port

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"rqretry_[a-z_]+")
RUNBOOK = re.compile(r"docs/operations\.md#([a-z-]+)")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def known() -> set[str]:
    """The names that the sources of metrics write."""
    modules = (
        rqretry.cli.metrics,
        rqretry.supervision.metrics_port,
        rqretry.gateway.metrics,
        rqretry.observability.prometheus_text,
    )
    return {name for module in modules for name in _strings(Path(str(module.__file__)))}


def _strings(path: Path) -> set[str]:
    return set(re.findall(r'"(rqretry_[a-z_]+)"', path.read_text()))


def asked(text: str) -> set[str]:
    return {SUFFIX.sub("", name) for name in NAME.findall(text)}


def anchors() -> set[str]:
    """What can be linked to in the runbooks."""
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    return {heading.lower().replace(" ", "-") for heading in headings}


def test_the_dashboard_shows_metrics_that_exist_and_names_a_runbook_in_every_panel() -> None:
    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    exprs = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(exprs) >= 12
    assert asked(" ".join(exprs)) <= known()
    runbooks = [RUNBOOK.findall(panel["description"]) for panel in board["panels"]]
    assert {len(found) for found in runbooks} == {1}
    assert {anchor for (anchor,) in runbooks} <= anchors()


def test_every_alert_asks_for_metrics_that_exist_and_has_a_runbook() -> None:
    text = (ROOT / "deploy/alerts.yaml").read_text()
    exprs = re.findall(r"expr: ((?:.|\n {10})*)", text)
    runbooks = re.findall(r"runbook: docs/operations\.md#(.*)", text)
    assert len(exprs) == len(runbooks) == text.count("- alert:") == 18
    assert asked(" ".join(exprs)) <= known()
    assert set(runbooks) <= anchors()


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (Debian: prometheus)")
def test_every_alert_fires_and_stays_silent_where_it_should() -> None:
    promtool = [shutil.which("promtool") or "", "test", "rules", "deploy/alerts_test.yaml"]
    done = subprocess.run(promtool, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = set(re.findall(r"- alert: (\w+)", (ROOT / "deploy/alerts.yaml").read_text()))
    tests = (ROOT / "deploy/alerts_test.yaml").read_text().split("\n  - name: ")[1:]
    silent = {name for test in tests if "exp_alerts: []" in test for name in _alerts(test)}
    assert {name for test in tests for name in _alerts(test)} == rules
    assert rules - silent == set()
    assert rules - {n for t in tests if "exp_labels" in t for n in _alerts(t)} == set()


def _alerts(test: str) -> list[str]:
    return re.findall(r"alertname: (\w+)", test)
