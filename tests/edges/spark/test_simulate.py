"""simulate: exact where the archive tells, a range where it does not."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rqretry import App, ConfigError, InvalidArgument, Message, RetryPolicy
from rqretry.cli.pipeline import pipeline as command
from rqretry.core.parts import parts_of
from rqretry.core.retry_policy import CompiledPolicy
from rqretry.spark import SimulationSummary, archive, simulate
from rqretry.spark.retry_model import (
    MOST_ATTEMPTS,
    Attempt,
    Candidate,
    Case,
    observed,
    read_case,
    replay,
)
from rqretry.testing import Lab
from tests.edges.spark.pipeline import Pipeline

FOREVER = 10**15
spark = pytest.mark.spark


def candidate(*delays_ms: int, retries: int | None = 16) -> Candidate:
    return Candidate("some", CompiledPolicy(delays_ms), None if retries is None else retries + 1)


def failed(*begun: int, how: str = "fail") -> tuple[Attempt, ...]:
    """Attempts of 10 ms each."""
    return tuple(Attempt(at, at + 10, how) for at in begun)


def succeeded(*begun: int) -> Case:
    """A message whose last attempt succeeded."""
    *bad, good = begun
    attempts = (*failed(*bad), Attempt(good, good + 10, "succeed"))
    return Case(0, attempts, len(attempts), "committed")


def died(*begun: int) -> Case:
    return Case(0, failed(*begun), len(begun), "dead")


def outcomes(case: Case, policy: Candidate) -> list[tuple[str, list[int], bool]]:
    """At best and at worst."""
    both = [replay(case, policy, FOREVER, hopeful=hopeful) for hopeful in (True, False)]
    return [(one.outcome, one.begun, one.known) for one in both]


@pytest.mark.parametrize(
    ("case", "retries"),
    [(succeeded(0), 2), (succeeded(0, 110, 320), 2), (died(0, 110, 320), 2)],
)
def test_the_policy_that_was_used_answers_what_was_observed(case: Case, retries: int) -> None:
    policy = candidate(100, 200, retries=retries)
    played = replay(case, policy, FOREVER, hopeful=False)
    assert played == observed(case)
    assert played == replay(case, policy, FOREVER, hopeful=True)


def test_between_a_failure_and_the_success_nothing_is_known() -> None:
    case = succeeded(0, 100, 1000)
    assert outcomes(case, candidate(500)) == [
        ("committed", [0, 510], False),
        ("committed", [0, 510, 1020], False),
    ]
    assert outcomes(case, candidate(90, 890)) == [("committed", [0, 100, 1000], True)] * 2
    assert outcomes(case, candidate(40, retries=2)) == [("dead", [0, 50, 100], True)] * 2
    assert outcomes(case, candidate(2000)) == [("committed", [0, 2010], True)] * 2


def test_after_the_last_failure_of_what_never_succeeded_nothing_is_known() -> None:
    assert outcomes(died(0, 100), candidate(200, retries=2)) == [
        ("committed", [0, 210], False),
        ("dead", [0, 210, 420], False),
    ]
    assert outcomes(died(0, 100), candidate(10, retries=1)) == [("dead", [0, 20], True)] * 2


def test_what_its_handler_rejected_stays_rejected() -> None:
    case = Case(0, (Attempt(0, 10, "fail"), Attempt(100, 110, "fail", rejected=True)), 2, "dead")
    assert outcomes(case, candidate(5000)) == [("dead", [0, 5010], True)] * 2


def test_a_first_expiry_is_tried_again_at_once_and_a_second_one_waits() -> None:
    case = Case(0, failed(0, 10, 520, how="expire"), 3, "dead")
    assert outcomes(case, candidate(500, retries=2))[1] == ("dead", [0, 10, 520], True)


def test_a_delivery_is_as_late_as_the_observed_one_of_its_number() -> None:
    attempts = (
        Attempt(0, 10, "fail"),
        Attempt(117, 127, "fail", late=7),
        Attempt(230, 240, "succeed", late=3),
    )
    case = Case(0, attempts, 3, "committed")
    assert outcomes(case, candidate(100)) == [("committed", [0, 117, 230], True)] * 2


def test_without_a_limit_it_ends_with_the_history_or_after_very_many_deliveries() -> None:
    case = died(0, 100)
    worst = replay(case, candidate(90, retries=None), 350, hopeful=False)
    assert (worst.outcome, worst.begun) == ("unfinished", [0, 100, 200, 300])
    worst = replay(case, candidate(1, retries=None), FOREVER, hopeful=False)
    assert (worst.outcome, len(worst.begun)) == ("unfinished", MOST_ATTEMPTS)


def step(at: int, event: str, attempt: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "event": event, "at": at, "attempt": attempt, "outcome": None, "error_type": None,
        "due": None, **more,
    }  # fmt: skip


def test_a_case_is_read_from_its_events() -> None:
    steps = [
        step(0, "lease", 1),
        step(5, "release", 1, outcome="ready"),
        step(8, "lease", 1),
        step(10, "fail", 1, outcome="waiting_retry", due=110),
        step(115, "lease", 2),
        step(120, "fail", 2, outcome="dead", error_type="ValueError"),
        step(500, "redrive", outcome="ready"),
        step(501, "lease", 1),
        step(505, "succeed", 1, outcome="committed"),
    ]
    case = read_case(-3, steps, retried=1)
    assert case is not None
    assert case.attempts == (
        Attempt(8, 10, "fail"),
        Attempt(115, 120, "fail", late=5),
        Attempt(501, 505, "succeed", late=1),
    )
    assert (case.before, case.outcome) == (2, "dead")
    assert observed(case).begun == [8, 115]
    # What the redrive showed is known of a policy that would have waited so long.
    assert replay(case, candidate(600), FOREVER, hopeful=False).took == 615 + 4 + 3

    rejected = read_case(None, steps[:6], retried=2)
    assert rejected is not None
    assert [one.rejected for one in rejected.attempts] == [False, True]


@pytest.mark.parametrize(
    "steps",
    [
        [step(0, "lease", 1)],
        [step(0, "lease", 2), step(1, "succeed", 2)],
        [step(0, "redrive"), step(1, "lease", 1), step(2, "succeed", 1)],
    ],
)
def test_a_message_whose_beginning_is_not_archived_is_no_case(steps: list[dict[str, Any]]) -> None:
    assert read_case(0, steps, retried=0) is None


@pytest.fixture
def history(pipeline: Pipeline, lab_redis: Lab, tmp_path: Path) -> str:
    """An archive: 20 messages succeed at once, 6 at their third delivery, 4 die of it."""
    app = App()

    @app.consumer("t", group="g", max_retries=2, policy=RetryPolicy.fixed("10s"))
    def settle(body: dict[str, int], message: Message[Any]) -> None:
        if body["n"] >= 26 or (body["n"] >= 20 and message.attempt < 3):
            raise ValueError("not yet")

    lab_redis.app(app)
    lab_redis.publish_many("t", [{"n": n} for n in range(30)])
    lab_redis.advance("1m")
    output = str(tmp_path / "history")
    where: dict[str, Any] = {
        "url": lab_redis.url,
        "namespace": parts_of(lab_redis.client).settings.namespace,
    }
    archive(pipeline.spark, output, **where)
    return output


FIGURES = ("committed", "dead", "unfinished", "deliveries", "peak", "not_known", "to_success_p95")


def figures(found: SimulationSummary) -> dict[tuple[str | None, str], tuple[Any, ...]]:
    assert {(row["topic"], row["group"], row["messages"]) for row in found.rows} == {("t", "g", 30)}
    return {
        (row["policy"], row["scenario"]): tuple(row[name] for name in FIGURES) for row in found.rows
    }


@pytest.mark.campaign
@spark
@pytest.mark.timeout(400)
def test_an_archive_is_replayed_through_each_policy(pipeline: Pipeline, history: str) -> None:
    policies: list[str | RetryPolicy] = [
        "fixed:10s",
        RetryPolicy.ladder("5s 10s", max_retries=1),
        "fixed:15s",
    ]
    found = simulate(pipeline.spark, history, policies, max_retries=2, window="10s")
    assert found.left_out == 0
    assert len(found.assumptions) == 5
    seen = (26, 4, 0, 50, 30, 0, 20.0)
    assert figures(found) == {
        (None, "observed"): seen,
        ("fixed:10s", "best"): seen,
        ("fixed:10s", "worst"): seen,
        # The second delivery comes while it is known to fail.
        ("ladder:5s 10s", "best"): (20, 10, 0, 40, 40, 0, 0.0),
        ("ladder:5s 10s", "worst"): (20, 10, 0, 40, 40, 0, 0.0),
        # The second one is at 15 s and the third at 30 s: six succeed at one of them, and of the
        # four that died at 20 s nothing is known after it.
        ("fixed:15s", "best"): (30, 0, 0, 44, 30, 10, 30.0),
        ("fixed:15s", "worst"): (26, 4, 0, 50, 30, 10, 30.0),
    }
    with pytest.raises(ConfigError, match="has no delivery of group 'other' to replay"):
        simulate(pipeline.spark, history, "fixed:1s", group="other")


@pytest.mark.campaign
@spark
@pytest.mark.timeout(400)
def test_the_command_prints_what_it_found_and_what_it_supposes(
    pipeline: Pipeline, history: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.spark, "stop", lambda: None)  # it is that of all tests
    monkeypatch.setattr("rqretry.spark.sessions.session", lambda *_: pipeline.spark)
    request_parts = ["simulate", "--from", history, "--policy", "fixed:10s", "--max-retries", "2"]
    answer = CliRunner().invoke(
        command, [*request_parts, "--policy", "fixed:15s"], standalone_mode=False
    )
    assert answer.exception is None, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == "t / g: 30 messages"
    assert [line.split()[:4] for line in lines[2:]] == [
        ["-", "-", "observed", "26"],
        ["fixed:10s", "2", "known", "26"],
        ["fixed:15s", "2", "best", "30"],
        ["fixed:15s", "2", "worst", "26"],
    ]
    assert "The moment decides, not the number of the attempt" in answer.stderr

    answer = CliRunner().invoke(
        command, [*request_parts, "--json", "--group", "g"], standalone_mode=False
    )
    assert answer.exception is None, answer.output
    shown = json.loads(answer.stdout)
    assert [row["scenario"] for row in shown["rows"]] == ["observed", "best", "worst"]
    assert (shown["left_out"], shown["window_seconds"]) == (0, 60)


@pytest.mark.campaign
@spark
@pytest.mark.timeout(400)
def test_what_cannot_be_replayed_is_one_sentence(pipeline: Pipeline, tmp_path: Path) -> None:
    history = str(tmp_path / "none")
    with pytest.raises(ConfigError, match="there is no archive in"):
        simulate(pipeline.spark, history, "fixed:1s")
    with pytest.raises(InvalidArgument, match="policy 'sometimes' is not a policy"):
        simulate(pipeline.spark, history, "sometimes")
    with pytest.raises(InvalidArgument, match="which policies"):
        simulate(pipeline.spark, history, [])
    with pytest.raises(InvalidArgument, match="max_retries -1"):
        simulate(pipeline.spark, history, "fixed:1s", max_retries=-1)


def test_the_command_refuses_a_bad_policy_before_spark_starts() -> None:
    request_parts = ["simulate", "--from", "x", "--policy", "sometimes"]
    answer = CliRunner().invoke(command, request_parts, standalone_mode=False)
    assert isinstance(answer.exception, InvalidArgument)
