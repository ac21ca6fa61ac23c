"""simulate: why deliveries failed, and what other policies would have made of it."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.retry_worlds import (
    ARCHIVED,
    CHANCE,
    MIXES,
    OUTAGE,
    PERMANENT,
    World,
    ladder,
    run,
)
from rqretry import App, ConfigError, InvalidArgument, Message, RetryPolicy
from rqretry.cli.pipeline import pipeline as command
from rqretry.core.parts import parts_of
from rqretry.core.retry_policy import CompiledPolicy
from rqretry.spark import archive, simulate
from rqretry.spark.back_test import back_test_of
from rqretry.spark.forecast import Forecast, Model, observed
from rqretry.spark.retry_model import Attempt, Candidate, Case, read_case
from rqretry.spark.tally import Tally
from rqretry.testing import Lab
from tests.edges.spark.archives import START, written
from tests.edges.spark.pipeline import Pipeline

spark = pytest.mark.spark


def test_every_source_of_failures_is_found_in_worlds_that_are_known() -> None:
    for seed, mix in enumerate(MIXES):
        world = World.of(mix, seed)
        kinds = Model.of(world.play(ARCHIVED, 0)).kinds
        assert (sum(kind.permanent for kind in kinds) > 0.01) == (PERMANENT in mix)
        assert sum(kind.early for kind in kinds) == 0
        chance = sum(kind.chance for kind in kinds)
        assert chance == pytest.approx(world.chance, abs=0.04)
        found = [one.inside for kind in kinds for one in kind.outages]
        assert len(found) <= len(world.outages)
        assert bool(found) == (OUTAGE in mix)
        for begun, ended in found:
            assert any(a < ended and begun < b for a, b in world.outages)


def test_intervals_hold_the_truth_of_known_worlds_and_those_of_a_naive_forecast_do_not() -> None:
    found = run(7, 20)
    (model,), (naive,) = ([row for row in one.rows() if row[0] == "all"] for one in found.values())
    assert model[1] is not None
    assert naive[1] is not None
    assert model[1] > 0.75 > naive[1]


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_each_figure_is_held_as_often_as_it_should_be() -> None:
    """Nine in ten; figures of few values cannot be held as seldom as that."""
    rows = {name: (share, count) for name, share, count, _ in run(200, 100)["model"].rows()}
    assert len(rows) == 10
    for name, (share, count) in rows.items():
        assert count > 50, name
        assert 0.85 < (share or 0) < 0.98, name


def test_messages_whose_time_has_not_come_are_early_and_not_unlucky() -> None:
    rng = np.random.default_rng(1)
    cases = []
    for number in range(400):
        late, at, attempts = (rng.uniform(50, 250) if number % 4 == 0 else 0), 0, []
        for wait in (10, 30, 60, 120, 180, 0):
            good = at >= late * 1000
            how = "succeed" if good else "fail"
            attempts.append(Attempt(at, at + 5, how, kind="" if good else "not yet"))
            if good:
                break
            at += 5 + wait * 1000
        cases.append(Case(0, tuple(attempts), len(attempts), "committed"))
    (kind,) = Model.of(cases).kinds
    assert kind.early == pytest.approx(0.25, abs=0.02)
    assert kind.chance < 0.02
    assert kind.permanent == 0
    forecast = Forecast(Model.of(cases), 50, rng)
    tally = Tally(50, 60_000)
    for played in forecast.play(cases, ladder(20), 0):
        tally.add(played)
    assert tally.row("high")["committed"] <= 303  # the others would have had to wait


def test_each_simulation_has_a_model_of_its_own_as_uncertain_as_it_is() -> None:
    cases = World.of((PERMANENT, CHANCE), 5).play(ARCHIVED, 0)
    spread = []
    for some in (cases, cases[::10]):
        draws = Forecast(Model.of(some), 200, np.random.default_rng(1)).draws.kinds
        chance = max((kind.chance for kind in draws), key=np.mean)
        permanent = max((kind.permanent for kind in draws), key=np.mean)
        spread.append([np.std(chance), np.std(permanent)])
    tried = sum(len(case.attempts) for case in cases if case.outcome == "committed")
    assert spread[0][0] == pytest.approx((0.29 * 0.71 / tried) ** 0.5, rel=0.3)
    assert spread[0][1] == pytest.approx((0.094 * 0.906 / len(cases)) ** 0.5, rel=0.3)
    assert spread[1] == pytest.approx([10**0.5 * one for one in spread[0]], rel=0.5)


def test_an_outage_that_had_not_ended_may_last_as_long_again() -> None:
    well = [Case(0, (Attempt(at, at + 5, "succeed"),), 1, "committed") for at in range(0, 900, 9)]
    down = [Case(0, (Attempt(at, at + 5, "fail", kind="x"),), 1, "dead") for at in range(900, 1000)]
    draws = Forecast(Model.of(well + down), 200, np.random.default_rng(1)).draws
    ((begun, ended, inside),) = draws.outages[0]
    assert 891 <= begun.min() <= begun.max() <= 901
    assert np.median(ended) == pytest.approx(1100, rel=0.05)
    assert ended.max() > 2000
    assert set(inside) == {1}


def test_handlers_take_as_long_as_they_did_and_not_as_long_as_a_lease() -> None:
    tried = Attempt(0, 100, "fail", kind="x", handler=5), Attempt(200, 300, "succeed", handler=5)
    for handler, seconds in ((5.0, 0.1), (None, None)):
        attempts = tuple(one._replace(handler=handler) for one in tried)
        cases = [Case(0, attempts, 2, "committed")] * 10
        forecast = Forecast(Model.of(cases), 9, np.random.default_rng(1))
        for played in (*forecast.play(cases, ladder(1), 0), observed(cases)):
            tally = Tally(played.committed.shape[1], 60_000)
            tally.add(played)
            assert tally.row("likely")["handler_seconds"] == seconds


def test_an_archive_is_forecast_part_by_part_from_the_rest_of_it() -> None:
    cases = World.of((PERMANENT, CHANCE), 5).play(ARCHIVED, 0)
    rows = {row["figure"]: row for row in back_test_of({"g": cases[:200]}, 20)}
    assert rows["all"]["intervals"] > 40
    assert rows["all"]["model"] > 0.8
    assert rows["committed"]["naive"] is not None


def test_a_policy_without_a_limit_ends_with_the_history() -> None:
    case = Case(0, (Attempt(0, 10, "fail", kind="x"),), 1, "dead")
    forecast = Forecast(Model.of([case] * 20), 20, np.random.default_rng(1))
    endless = Candidate("some", CompiledPolicy((90,)), None)
    (played,) = forecast.play([case], endless, 350)
    assert set(played.deliveries[~played.committed].tolist()) == {4}
    assert not played.dead.any()


def test_a_first_expiry_is_tried_again_at_once_and_a_rejected_message_is_dead() -> None:
    expired = Case(0, (Attempt(0, 10, "expire", kind="expired"),), 1, "dead")
    forecast = Forecast(Model.of([expired] * 20), 20, np.random.default_rng(1))
    ((begun, *_),) = forecast.play([expired], ladder(0.5, 0.5), 0)
    assert [set(at.tolist()) for at, _ in begun] == [{0}, {10}, {520}]

    rejected = Case(0, (Attempt(0, 10, "fail", rejected=True, kind="rejected x"),), 1, "dead")
    forecast = Forecast(Model.of([rejected]), 3, np.random.default_rng(1))
    (played,) = forecast.play([rejected], ladder(1, 2), 0)
    assert (played.dead.tolist(), played.deliveries.tolist()) == ([[True] * 3], [[1] * 3])


def test_sums_of_tasks_are_the_sums_of_all_however_they_are_cut() -> None:
    cases = World.of((CHANCE,), 2).play(ARCHIVED, 0)[:60]
    whole, parts = Tally(1, 1000), [Tally(1, 1000), Tally(1, 1000)]
    whole.add(observed(cases))
    for number, case in enumerate(cases):
        parts[number % 2].add(observed([case]))
    merged = Tally.unpacked(parts[0].packed())
    merged.merge(Tally.unpacked(parts[1].packed()))
    assert merged.row("likely") == pytest.approx(whole.row("likely"))
    took = sorted(c.attempts[-1].ended - (c.ready or 0) for c in cases if c.outcome == "committed")
    assert whole.row("low")["to_success_longest"] == took[-1] / 1000
    p50 = took[(len(took) + 1) // 2 - 1] / 1000
    assert whole.row("low")["to_success_p50"] == pytest.approx(p50, rel=0.01)


def step(at: int, event: str, attempt: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "event": event, "at": at, "attempt": attempt, "outcome": None, "error_type": None,
        "fingerprint": None, "due": None, "handler": None, **more,
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
        Attempt(8, 10, "fail", kind="fail"),
        Attempt(115, 120, "fail", late=5, kind="ValueError"),
        Attempt(501, 505, "succeed", late=1),
    )
    assert (case.before, case.outcome) == (2, "dead")
    assert [at.tolist() for at, _ in observed([case]).begun] == [[8], [115]]

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


@pytest.mark.campaign
@spark
@pytest.mark.timeout(400)
def test_an_archive_is_replayed_through_each_policy(pipeline: Pipeline, history: str) -> None:
    policies: list[str | RetryPolicy] = ["fixed:10s", RetryPolicy.fixed("5s", max_retries=0)]
    found = simulate(pipeline.spark, history, policies, max_retries=2, window="10s")
    again = simulate(pipeline.spark, history, policies, max_retries=2, window="10s")
    assert found.rows == again.rows
    assert found.left_out == 0
    rows = {(row["policy"], row["scenario"]): row for row in found.rows}
    seen = rows[None, "observed"]
    names = ("messages", "committed", "dead", "unfinished", "deliveries", "peak", "not_known")
    assert tuple(seen[name] for name in names) == (30, 26, 4, 0, 50, 30, 0)
    assert seen["to_success_p95"] == pytest.approx(20, rel=0.01)
    for scenario in ("low", "likely", "high"):
        only = rows["fixed:5s", scenario]  # what was first seen is known
        assert tuple(only[name] for name in names) == (30, 20, 10, 0, 30, 30, 10)
    low, high = (rows["fixed:10s", end] for end in ("low", "high"))
    assert low["committed"] <= 26 <= high["committed"]
    assert low["deliveries"] <= 50 <= high["deliveries"]
    with pytest.raises(ConfigError, match="has no delivery of group 'other' to replay"):
        simulate(pipeline.spark, history, "fixed:1s", group="other")


@pytest.mark.campaign
@spark
@pytest.mark.timeout(400)
def test_a_time_is_simulated_beside_as_long_a_time_before(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    output = written(
        tmp_path,
        (1, "a", "lease", "g", 1, "inflight"),
        (2, "a", "fail", "g", 1, "dead"),
        (11, "b", "lease", "g", 1, "inflight"),
        (12, "b", "succeed", "g", 1, "committed"),
        (13, "c", "lease", "g", 1, "inflight"),
        (14, "c", "succeed", "g", 1, "committed"),
    )
    since, until = (START + timedelta(seconds=at) for at in (10, 20))
    found = simulate(
        pipeline.spark, output, "fixed:1s", max_retries=0, since=since, until=until, compare=True
    )
    for rows, counts in ((found.rows, (2, 2, 0)), (found.before, (1, 0, 1))):
        own = rows[0]
        assert (own["messages"], own["committed"], own["dead"]) == counts
        assert own["handler_seconds"] == 0.5 * counts[0]
        assert [row["scenario"] for row in rows] == ["observed", "low", "likely", "high"]
    with pytest.raises(InvalidArgument, match="compare needs a time to compare"):
        simulate(pipeline.spark, output, "fixed:1s", since=since, compare=True)


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
        command, [*request_parts, "--policy", "fixed:15s", "--back-test"], standalone_mode=False
    )
    assert answer.exception is None, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == "t / g: 30 messages"
    assert [line.split()[:3] for line in lines[2:9]] == [
        ["-", "-", "observed"],
        *(["fixed:10s", "2", scenario] for scenario in ("low", "likely", "high")),
        *(["fixed:15s", "2", scenario] for scenario in ("low", "likely", "high")),
    ]
    assert lines[9].split() == ["figure", "model", "naive", "intervals"]
    assert "The first delivery of a message ends as it did" in answer.stderr

    answer = CliRunner().invoke(
        command, [*request_parts, "--json", "--group", "g"], standalone_mode=False
    )
    assert answer.exception is None, answer.output
    shown = json.loads(answer.stdout)
    assert [row["scenario"] for row in shown["rows"]] == ["observed", "low", "likely", "high"]
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
