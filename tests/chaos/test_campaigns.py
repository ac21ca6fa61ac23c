"""A small, fixed part of `make chaos`, and that its judge finds what it is to find."""

import json
import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.campaigns.__main__ import main
from tests.chaos.campaigns.campaign import WANTED, size_of, wanted_in
from tests.chaos.campaigns.evidence import (
    Faults,
    History,
    Verdict,
    by_message,
    consult,
    judge,
    stated,
)
from tests.chaos.campaigns.nursery import ROOT
from tests.chaos.campaigns.plan import Kind, draw, named
from tests.chaos.campaigns.report import EMPTIED, Wanted, bound, parts_of, shortage, table, total_of
from tests.chaos.campaigns.run import Run
from tests.conftest import missing, program
from tests.model.checker.history import Effect, Operation
from tests.model.checker.report import Finding, Report
from tests.support.faults.power import NoCompiler
from tests.support.servers import SERVERS

pytestmark = pytest.mark.chaos

S = 1_000_000_000
QUICK = {
    Kind.WORKER: 0.1, Kind.REDIS: 0.15, Kind.NETWORK: 0.4, Kind.POWER: 0.15,
    Kind.SLOTS: 0.3, Kind.EMPTY: 0.3, Kind.RIGHTS: 0.3,
    Kind.GATEWAY: 0.25,
}  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("kind", "server"), [*zip(QUICK, cycle(SERVERS), strict=False)])
def test_a_small_run_loses_nothing(kind: Kind, server: str, tmp_path: Path) -> None:
    one(kind, 1, QUICK[kind], tmp_path, program(server).path)


@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("seed", [2, 3])
def test_a_full_run_loses_nothing(kind: Kind, seed: int, tmp_path: Path) -> None:
    one(kind, seed, 1.0, tmp_path)


def one(kind: Kind, seed: int, size: float, folder: Path, binary: Path | None = None) -> None:
    try:
        result = Run(draw(kind, seed, size), folder / "run", binary=binary).execute()
    except NoCompiler as error:
        missing(str(error))
        raise
    log = (folder / "run" / "log").read_text()[-2000:]
    assert result.findings == [], log
    assert sum(result.verdict.accepted.values()) > 0, log
    assert result.verdict.starts > 0, log


def test_a_plan_is_its_seed() -> None:
    for kind in Kind:
        assert draw(kind, 7) == draw(kind, 7)
        assert draw(kind, 7) != draw(kind, 8)
        assert named(draw(kind, 7).name) == draw(kind, 7)
        assert named(draw(kind, 7, 0.5).name) == draw(kind, 7, 0.5)
    assert draw(Kind.WORKER, 1).trials == 60
    assert draw(Kind.WORKER, 1, 0.5).name == "worker-kill:1@0.5"
    assert draw(Kind.FAILOVER, 1).trials == 5
    assert set(WANTED) == set(Kind)


@pytest.mark.parametrize("seconds", [1, 30, 60, 600, 3600])
@pytest.mark.parametrize("most", [0.3, 1.0])
def test_runs_of_one_size_make_up_what_a_campaign_wants(seconds: float, most: float) -> None:
    for kind, wanted in wanted_in(seconds).trials.items():
        size = size_of(kind, wanted, most)
        trials = draw(kind, 1, size).trials
        assert 0 < size <= most
        runs = -(-wanted // trials)
        assert runs * trials < wanted + draw(kind, 1, most).trials + runs  # no run too many
    assert wanted_in(60).messages == 30_000
    assert wanted_in(3600).trials[Kind.WORKER] == 500
    assert wanted_in(600, [Kind.REDIS]) == Wanted({Kind.REDIS: 100}, 0)


# -- the judge ---------------------------------------------------------------------------------


def history(*confirmed: str, failed: tuple[str, ...] = ()) -> History:
    return History(confirmed=dict.fromkeys(confirmed, "memory"), failed=set(failed))


def start(at: float, lease_no: int = 1, end: float = 0, outcome: str = "") -> Effect:
    times = (round(at * S), round(end * S))
    return Effect("t", "g", "a", lease_no, lease_no, "1", *times, outcome)


DONE = start(1, end=1.1, outcome="success")


def test_the_judge_finds_a_lost_message() -> None:
    verdict = judge(history("a", "b"), {("g", "a"): [DONE]}, Faults(), ["g"], {"g": set()})
    assert verdict.lost == {"memory": ["g b"]}
    assert verdict.accepted == {"memory": 2}
    for held in ({"b"}, {"b", "c"}):
        verdict = judge(history("a", "b"), {("g", "a"): [DONE]}, Faults(), ["g"], {"g": held})
        assert verdict.lost == {}


def test_a_start_without_a_good_end_is_not_handled() -> None:
    for only in (start(1), start(1, end=1.1, outcome="failure")):
        verdict = judge(history("a"), {("g", "a"): [only]}, Faults(), ["g"], {})
        assert verdict.lost == {"memory": ["g a"]}


def test_each_group_must_have_it() -> None:
    verdict = judge(history("a"), {("g", "a"): [DONE]}, Faults(), ["g", "h"], {})
    assert verdict.lost == {"memory": ["h a"]}


def test_the_judge_finds_a_phantom() -> None:
    stated = history("a", failed=("a", "b", "c"))
    verdict = judge(stated, {("g", "a"): [DONE], ("g", "b"): [DONE]}, Faults(), ["g"], {})
    assert verdict.phantoms == ["b"]


@pytest.mark.parametrize(
    ("before", "after", "failures_seen", "explained"),
    [
        (DONE, start(3, 2), Faults(), False),
        (start(1, end=1.1, outcome="failure"), start(1.2, 2), Faults(), True),
        (DONE, start(3, 2), Faults(killed={"1": round(1.2 * S)}), True),
        (DONE, start(30, 2), Faults(killed={"1": 20 * S}), False),  # it had settled long ago
        (DONE, start(3, 2), Faults(killed={"2": round(1.2 * S)}), False),  # somebody else
        (start(1), start(3, 2), Faults(killed={"1": round(1.2 * S)}), True),
        (start(1), start(3, 2), Faults(killed={"1": round(0.5 * S)}), False),
        (DONE, start(3, 2), Faults(server=[(2 * S, 3 * S)]), True),
        (DONE, start(3, 2), Faults(server=[(4 * S, 5 * S)]), False),
        (DONE, start(5, 2), Faults(stopped={"1": [(1 * S, 4 * S)]}), True),
        (start(1, end=3.5, outcome="success"), start(3.2, 2), Faults(), True),
    ],
)
def test_a_second_start_needs_a_reason(
    before: Effect, after: Effect, failures_seen: Faults, explained: bool
) -> None:
    verdict = judge(history("a"), {("g", "a"): [before, after]}, failures_seen, [], {})
    assert (verdict.explained, len(verdict.unexplained)) == (int(explained), int(not explained))
    assert verdict.double_leases == []


def test_the_judge_finds_two_starts_under_one_lease() -> None:
    twice = [start(1, end=1.1, outcome="failure"), start(2)]
    assert judge(history("a"), {("g", "a"): twice}, Faults(), [], {}).double_leases
    lost_memory = Faults(server=[(round(1.2 * S), round(1.3 * S))])
    assert judge(history("a"), {("g", "a"): twice}, lost_memory, [], {}).double_leases


def test_what_the_publishers_wrote_is_what_they_were_reported() -> None:
    def call(outcome: str, id_: str, **fields: Any) -> Operation:
        return Operation("p", 1, "publish", outcome, {"id": id_, **fields})

    history = stated(
        [
            call("ok", "a", tier_confirmed="memory"), call("info", "b"),
            call("ok", "b", tier_confirmed="replica:1"),
            call("ok", "b", tier_confirmed="memory"), call("fail", "c", error="StoreUnavailable"),
            call("fail", "b"), call("info", "d"), call("fail", "", error="InvalidArgument"),
            Operation("p", 9, "fault", "ok", {"what": "kill"}),
        ]
    )  # fmt: skip
    assert history.confirmed == {"a": "memory", "b": "replica:1"}
    assert history.unsure == {"b", "d"}
    assert history.definitely_not == {"c"}
    assert len(history.refused) == 1
    assert history.calls == 8


def test_what_was_accepted_before_the_data_were_gone_is_counted_apart() -> None:
    before, after = (
        Operation("p", n, "publish", "ok", {"id": id_, "tier_confirmed": "memory"}, began_ns=n * S)
        for n, id_ in ((1, "a"), (3, "b"))
    )
    assert stated([before, after], 2 * S).confirmed == {"a": EMPTIED, "b": "memory"}


def test_starts_are_kept_apart_by_message_and_in_order() -> None:
    late, early = start(2), start(1)
    assert by_message([late, early]) == {("g", "a"): [early, late]}


def test_the_checker_has_the_last_word_on_leases_where_it_has_the_journal() -> None:
    report = Report([Finding("I5", "a", "two"), Finding("I8", "b", "why"), Finding("I1", "c", "-")])
    report.duplicates.update({"D-b": 3})
    for journal, unexplained in ((True, ["b: why"]), (False, ["mine", "b: why"])):
        verdict = Verdict(unexplained=["mine"])
        consult(verdict, report, journal=journal)
        assert verdict.double_leases == ["a: two"]
        assert verdict.unexplained == unexplained
        assert verdict.findings == ["I1 c: -"]
        assert verdict.explained == (3 if journal else 0)


# -- the report --------------------------------------------------------------------------------


def as_run(kind: str, seed: int, **verdict: Any) -> dict[str, Any]:
    empty = {
        "accepted": {"memory": 100}, "lost": {}, "double_leases": [], "explained": 0,
        "unexplained": [], "phantoms": [], "findings": [], "starts": 0,
    }  # fmt: skip
    return {
        "kind": kind, "seed": seed, "trials": 10, "kills": 12, "idle_kills": 1, "seconds": 1.0,
        "strikes": {"kill a worker": 10, "kill Redis": 2}, "shown_losses": 0,
        "findings": list(verdict), "verdict": {**empty, **verdict},
    }  # fmt: skip


def test_the_table_adds_up_and_names_the_seeds() -> None:
    runs = [
        as_run("redis-kill", 5000), as_run("redis-kill", 5001, lost={"memory": ["g a"]}),
        as_run("worker-kill", 5000),
    ]  # fmt: skip
    parts = parts_of(runs)
    total = total_of(parts)
    assert [(p.name, p.trials, p.accepted, p.lost) for p in parts] == [
        ("worker-kill", 10, 100, 0),
        ("redis-kill", 20, 200, 1),
    ]
    assert (total.trials, total.accepted, total.lost, total.failed) == (30, 300, 1, [5001])
    text = table(parts)
    assert "5000-5001" in text
    assert "struck: kill Redis 6, kill a worker 30" in text
    assert (total.kills, total.idle_kills) == (36, 3)
    assert "not covered" in text.splitlines()[0]
    assert "<= 0.3" in text


def test_what_a_campaign_has_too_little_of_is_reported() -> None:
    parts = parts_of([as_run("redis-kill", 1), as_run("worker-kill", 1)])
    wanted = Wanted({Kind.WORKER: 10.4, Kind.REDIS: 11, Kind.NETWORK: 1}, 201)
    assert shortage(parts, wanted) == [
        "redis-kill 10 of 11", "network 0 of 1", "accepted messages 200 of 201",
    ]  # fmt: skip
    assert shortage(parts, Wanted({Kind.WORKER: 10}, 200)) == []


def test_what_was_never_promised_is_counted_apart() -> None:
    run = as_run("failover", 1, accepted={"memory": 40, "replica:1": 60}, lost={"memory": ["g a"]})
    run |= {"shown_losses": 1, "findings": []}
    (part,) = parts_of([run])
    assert (part.accepted, part.lost, part.uncovered, part.shown) == (60, 0, 40, 1)
    assert "1 of 40" in table([part])
    (part,) = parts_of([as_run("power-everysec", 1)])
    assert (part.accepted, part.uncovered) == (0, 100)
    assert "0 of 100" in part.row()
    assert "<=" not in " ".join(part.row())  # no loss of nothing is no bound


def test_the_bound_is_the_rule_of_three() -> None:
    assert [bound(0, 3000), bound(0, 1), bound(1, 3000), bound(0, 0)] == [
        "<= 0.001",
        "<= 1",
        "-",
        "-",
    ]


def test_a_finding_is_the_exit_status_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose handlers seem to have done nothing must not pass."""
    monkeypatch.setattr("tests.chaos.campaigns.run.by_message", lambda _: {})
    request_parts = ["--run", f"{Kind.REDIS}:1@0.1", "--folder", str(tmp_path)]
    assert main(request_parts) == 1
    assert "lost: memory: g0" in capsys.readouterr().err
    saved = json.loads((tmp_path / "redis-kill-1" / "result.json").read_text())
    assert saved["findings"]


@pytest.mark.campaign
@pytest.mark.timeout(240)
def test_a_campaign_prints_its_table(tmp_path: Path) -> None:
    request_parts = ("--seconds", "1", "--seed", "1", "--only", "network", "--size", "0.5")
    places = ("--folder", str(tmp_path), "--json", str(tmp_path / "r.json"))
    done = subprocess.run(
        (sys.executable, "-m", "tests.chaos.campaigns", *request_parts, *places),
        capture_output=True, text=True, cwd=ROOT, check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("COV")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "network" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["total"]["lost"] == 0
    assert report["seed"] == 1
    assert min(report["total"]["seeds"]) == 1000
