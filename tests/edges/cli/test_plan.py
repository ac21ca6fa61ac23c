"""rqretry plan: figures for a load, bad input, and the comparison with this machine."""

import pytest

from rqretry.admin.capacity import COSTS
from rqretry.cli.plan_measure import measure
from tests.edges.cli.shell import Shell


def test_a_plan_names_servers_workers_memory_and_network(shell: Shell) -> None:
    request = ("plan", "--rate", "20000/s", "--body", "1KB", "--failing", "2%", "--policy")
    text = shell.ok(*request, "rocketmq", "--retention", "1h")
    for name in ("primaries", "workers", "memory", "waiting", "kept", "network", "measured"):
        assert name in text
    whole = shell.json(*request, "fixed:1s", "--max-retries", "3", "--groups", "2", "--bulk")
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
        (("--rate", "1/s", "--max-retries", "-1"), "max_retries"),
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
