"""docs/deployment.md and its examples are true: options, sections, grace periods, numbers."""

import configparser
import re
from pathlib import Path

import click
import pytest

from rqretry.cli.worker import worker
from rqretry.core.durations import seconds
from rqretry.supervision.health import SILENT_S
from rqretry.supervision.supervisor import MARGIN_S
from rqretry.transport.store import MAX_IDLE
from rqretry.worker.worker import GRACE_S
from tests.contract.production.test_connections import PER_PROCESS, PER_SUPERVISOR

DOCS = Path(__file__).parents[3] / "docs"
UNIT = (DOCS / "examples" / "rqretry.service").read_text()
MANIFEST = (DOCS / "examples" / "kubernetes.yaml").read_text()
PAGE = (DOCS / "deployment.md").read_text()
KNOWN = {option for parameter in worker.params for option in parameter.opts}
OTHERS = {"--pin", "--now", "--fix"}
"""Options of other programs and commands that the texts name."""


def options_of(request_parts: list[str]) -> dict[str, object]:
    """The words of a worker command, read as the command line reads them."""
    context = worker.make_context("worker", request_parts)
    return context.params


@pytest.mark.parametrize("text", [UNIT, MANIFEST, PAGE])
def test_every_option_in_the_texts_exists(text: str) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named <= KNOWN | OTHERS
    assert named & KNOWN


def test_the_unit_is_a_unit_and_gives_the_worker_time_to_stop() -> None:
    unit = configparser.RawConfigParser(strict=True, comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read_string(UNIT)
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, command, *request_parts = service["ExecStart"].split()
    assert program.endswith("/rqretry")
    assert command == "worker"
    given = options_of(request_parts)
    assert given["target"] == "shop.billing:app"
    assert (
        seconds(service["TimeoutStopSec"], name="TimeoutStopSec")
        >= float(str(given["grace"])) + MARGIN_S
    )
    assert service["KillMode"] == "mixed"
    assert service["KillSignal"] == "SIGTERM"


def test_the_manifest_probes_the_right_paths_and_gives_the_worker_time_to_stop() -> None:
    indents = [len(line) - len(line.lstrip(" ")) for line in MANIFEST.splitlines()]
    assert "\t" not in MANIFEST
    assert all(indent % 2 == 0 for indent in indents)
    request_parts = re.findall(r'^ +- "(--[^"]+)"$', MANIFEST, re.MULTILINE)
    given = options_of(["shop.billing:app", *request_parts])
    (grace,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", MANIFEST)
    assert int(grace) >= float(str(given["grace"])) + MARGIN_S
    assert re.findall(r"containerPort: (\d+)", MANIFEST) == [str(given["health_port"])]
    assert given["health_host"] == "0.0.0.0"  # the kubelet asks from outside
    probes = re.findall(r"(\w+)Probe:\n +httpGet:\n +path: (\S+)\n +port: health\n", MANIFEST)
    assert probes == [("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")]


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"`--grace` ({GRACE_S:g} s)" in PAGE
    assert f"| {MARGIN_S:g} s after the grace period |" in PAGE
    assert f"has not reported for {SILENT_S:g} s" in PAGE
    shown = f"**{PER_PROCESS} for each worker process and {PER_SUPERVISOR} for its supervisor**"
    assert shown in PAGE
    assert f"Up to {MAX_IDLE} idle connections are kept" in PAGE
    assert 3 * (4 * PER_PROCESS + PER_SUPERVISOR) == 87
    assert "= 87" in PAGE


def test_every_option_of_the_worker_that_this_page_is_about_is_on_it() -> None:
    stated = {"--processes", "--concurrency", "--grace", "--max-messages", "--max-memory"}
    stated |= {"--reload", "--health-port", "--health-host", "--log-format", "--log-level"}
    assert stated <= KNOWN
    assert all(option in PAGE for option in stated)
    assert isinstance(worker, click.Command)
