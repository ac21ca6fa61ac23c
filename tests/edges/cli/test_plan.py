"""rqretry plan: figures for a load, bad input, and the comparison with this machine."""

import json
import shutil

import pytest

from rqretry.admin.capacity import COSTS, read_costs
from rqretry.cli import plan
from rqretry.cli.plan_measure import measure
from rqretry.testing import embedded_redis
from tests.edges.cli.shell import Shell

REQUEST = ("plan", "--rate", "20000/s", "--body", "1KB", "--failing", "2%")


def test_a_plan_names_servers_workers_memory_and_network(shell: Shell) -> None:
    text = shell.ok(*REQUEST, "--policy", "rocketmq", "--retention", "1h")
    for name in ("primaries", "workers", "memory", "waiting", "kept", "network", "measured"):
        assert name in text
    whole = shell.json(
        *REQUEST, "--policy", "fixed:1s", "--max-retries", "3", "--groups", "2", "--bulk"
    )
    figures = whole["plan"]
    assert figures["waiting"]["expected"] > 0 == figures["kept"]["expected"]
    assert set(whole["costs"]) == set(COSTS)
    assert whole["about"]["measured"] in text


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (("--rate", "many"), "--rate"),
        (("--rate", "1/s", "--body", "big"), "--body 'big' is not a size: write 500, 1KB or 64KiB"),
        (("--rate", "1/s", "--body", "5MB"), "body 5000000 must be 1 to 4194304 bytes"),
        (("--rate", "1/s", "--failing", "2"), "--failing '2' is not a share of the attempts"),
        (("--rate", "1/s", "--failing", "101%"), "failing 1.01"),
        (("--rate", "1/s", "--policy", "never"), "policy 'never' is not a policy"),
        (("--rate", "1/s", "--max-retries", "-1"), "--max-retries"),
        (("--rate", "1/s", "--failing", "100%", "--max-retries", "unlimited"), "never end"),
    ],
)
def test_bad_input_is_named_with_its_value(shell: Shell, bad: tuple[str, ...], reason: str) -> None:
    answer = shell("plan", *bad)
    assert answer.exit_code in {1, 2}
    assert reason in answer.stderr.replace('"', "'")
    assert "Traceback" not in answer.output


def test_what_is_planned_with_can_be_measured_here() -> None:
    here = measure(400)
    assert set(here) == set(COSTS)
    assert here["publish_one_us"] > here["publish_bulk_us"] > 0
    assert here["worker_us"] > 0 < here["failure_us"]


def test_a_check_measures_here_and_compares_each_cost(shell: Shell) -> None:
    answer = shell(*REQUEST, "--bulk", "--groups", "3", "--check")
    assert not answer.stderr.startswith("Error")
    rows = [line.split() for line in answer.stdout.splitlines() if line.startswith(COSTS)]
    assert [row[0] for row in rows] == [*COSTS]
    assert all(float(figure) >= 0 for row in rows for figure in row[1:3])
    others = [row[0] for row in rows if row[-1] == "other"]
    assert answer.exit_code == (1 if others else 0)
    assert not {"stored_bytes", "retry_bytes", "publish_one_in"} & {*others}, "these are no times"


@pytest.mark.parametrize(
    ("times", "is_other"), [(1.9, False), (0.55, False), (2.1, True), (0.4, True)]
)
def test_a_cost_that_is_twice_or_half_of_what_is_planned_with_fails_the_check(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, times: float, is_other: bool
) -> None:
    here = {name: cost.expected for name, cost in read_costs()[0].items()}
    here["failure_us"] *= times
    monkeypatch.setattr(plan, "measure", lambda _messages: here)
    text, whole = shell(*REQUEST, "--check"), shell(*REQUEST, "--check", "--json")
    assert text.exit_code == whole.exit_code == (1 if is_other else 0)
    (row,) = [line.split() for line in text.stdout.splitlines() if line.startswith("failure_us")]
    assert row[3:] == [f"{times:.2f}", *["other"] * is_other]
    assert text.stdout.count("other") == is_other == ("another one" in text.stderr)
    assert json.loads(whole.stdout)["measured_here"] == here


def test_a_check_without_a_server_to_start_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_redis, "bundled_servers", list)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    error = shell.fails(*REQUEST, "--check", status=1)
    assert "install redis-server or valkey-server" in error
