"""The dashboard and the alert rules ask for metrics that exist, and runbooks that are written."""

import json
import re
from pathlib import Path

import rqretry.cli.metrics
import rqretry.supervision.metrics_port

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"rqretry_[a-z_]+")
RUNBOOK = re.compile(r"docs/operations\.md#([a-z-]+)")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def known() -> set[str]:
    """The names that the two sources of metrics write."""
    modules = (rqretry.cli.metrics, rqretry.supervision.metrics_port)
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
    exprs = re.findall(r"expr: (.*)", text)
    runbooks = re.findall(r"runbook: docs/operations\.md#(.*)", text)
    assert len(exprs) == len(runbooks) == text.count("- alert:") == 7
    assert asked(" ".join(exprs)) <= known()
    assert set(runbooks) <= anchors()
