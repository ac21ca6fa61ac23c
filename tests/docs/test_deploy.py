"""The dashboard and the alert rules ask for metrics that exist, and runbooks that are written."""

import json
import re
from pathlib import Path

import rqretry.edge.cli.metrics
import rqretry.supervision.metrics_port

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"rqretry_[a-z_]+")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def known() -> set[str]:
    """The names that the two sources of metrics write."""
    modules = (rqretry.edge.cli.metrics, rqretry.supervision.metrics_port)
    return {name for module in modules for name in _strings(Path(str(module.__file__)))}


def _strings(path: Path) -> set[str]:
    return set(re.findall(r'"(rqretry_[a-z_]+)"', path.read_text()))


def asked(text: str) -> set[str]:
    return {SUFFIX.sub("", name) for name in NAME.findall(text)}


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    exprs = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(exprs) >= 12
    assert asked(" ".join(exprs)) <= known()


def test_every_alert_asks_for_metrics_that_exist_and_has_a_runbook() -> None:
    text = (ROOT / "deploy/alerts.yaml").read_text()
    exprs = re.findall(r"expr: (.*)", text)
    runbooks = re.findall(r"runbook: docs/operations\.md#(.*)", text)
    assert len(exprs) == len(runbooks) == text.count("- alert:") == 5
    assert asked(" ".join(exprs)) <= known()
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(runbooks) <= anchors
