"""redrive: what SQL chooses goes back once, whenever a run is killed."""

import json
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rqretry import App, ConfigError, GroupNotFound, InvalidArgument, StoreUnavailable
from rqretry.admin.dead_letter_filter import DeadLetterFilter, DeadLettersInOrder
from rqretry.admin.dead_letters import dead_letter_places
from rqretry.cli.pipeline import pipeline as command
from rqretry.core.parts import parts_of
from rqretry.spark import RedriveSummary, redrive
from rqretry.spark.redrive_choice import choose
from rqretry.spark.redrive_job import Pace, send, still_dead
from rqretry.spark.redrive_record import Choice, ChosenDeadLetter, Record, write_all
from rqretry.testing import Lab
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

TIMEOUTS = "error_type = 'TimeoutError' AND get_json_object(body, '$.n') < 12"
EVERYTHING = "dead_since IS NOT NULL"
KILLED_AT_A_CALL = """
import os, signal, sys
from rqretry import Client
from rqretry.protocol import operate
from rqretry.spark.redrive_record import Record
from rqretry.spark.redrive_job import Pace, send, still_dead

url, namespace, folder, where, calls = sys.argv[1:]
real, left = operate.redrive, int(calls)

def counted(*given, **more):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return real(*given, **more)

operate.redrive = counted
with Client(url, namespace=namespace) as client:
    record = Record(folder, client, "g", where)
    choice = record.read()
    send(client, choice, record, Pace(), still_dead(client, choice, record))
"""


@pytest.fixture
def lab(lab_redis: Lab) -> Lab:
    """Eighteen dead letters of group g, of two topics with two partitions and of two errors."""
    app = App()

    @app.consumer(["orders", "refunds"], group="g", max_retries=0)
    def fail(body: dict[str, int]) -> None:
        if body["n"] % 3:
            raise TimeoutError("the bank is slow")
        raise ValueError("no customer")

    for topic in ("orders", "refunds"):
        lab_redis.admin.create_topic(topic, partitions=2)
    lab_redis.app(app)
    lab_redis.publish_many("orders", [{"n": n} for n in range(12)])
    lab_redis.publish_many("refunds", [{"n": n} for n in range(12, 18)])
    lab_redis.run_until_idle()
    lab_redis.advance("1s")  # what dies again dies later: time stands still by itself
    return lab_redis


def everything(lab: Lab, record: Record) -> Choice:
    """What EVERYTHING chooses, found without Spark, and recorded."""
    all_of_them = DeadLetterFilter(all=True)
    perform = parts_of(lab.client).store.perform
    places = perform(dead_letter_places(parts_of(lab.admin).operations, "g", all_of_them))
    found = perform(DeadLettersInOrder(places, all_of_them, with_bodies=False).take(10_000))
    dead_records = [
        ChosenDeadLetter(one.topic, keys.partition.partition, one.id, one.dead_since_ms)
        for one, keys in found
    ]
    write_all(record.chosen_path, (one.line for one in dead_records))
    choice = Choice("g", EVERYTHING, len(dead_records))
    record.write(choice)
    return choice


def go_on(lab: Lab, folder: Path, **pace: Any) -> RedriveSummary:
    """Go on with a redrive of everything; no Spark is needed for it."""
    no_spark: Any = None
    return redrive(no_spark, "g", EVERYTHING, **where_is(lab), state=str(folder), **pace)


def where_is(lab: Lab) -> dict[str, Any]:
    return {"url": lab.url, "namespace": parts_of(lab.client).settings.namespace}


def sent_back(lab: Lab) -> list[int]:
    """How often each dead letter was ever sent back."""
    dead_records = lab.admin.dead_letters("g")
    assert len(dead_records) == 18
    return [sum(error.cause == "redriven" for error in one.errors) for one in dead_records]


def kill_at_call(lab: Lab, folder: Path, where: str, calls: int) -> None:
    """Go on with a redrive in a process that is killed when it has made so many calls."""
    request_parts = [
        lab.url,
        parts_of(lab.client).settings.namespace,
        str(folder),
        where,
        str(calls),
    ]
    done = subprocess.run([sys.executable, "-c", KILLED_AT_A_CALL, *request_parts], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.campaign
def test_a_dry_run_counts_kinds_shows_samples_and_changes_nothing(
    pipeline: Pipeline, lab: Lab, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    found = redrive(
        pipeline.spark, "g", TIMEOUTS, **where_is(lab), state=str(state), dry_run=True, canary=2
    )
    assert (found.chosen, found.sent, found.left, found.before) == (8, 8, 8, 0)
    (kind,) = found.kinds
    assert (kind["topic"], kind["error_type"], kind["count"]) == ("orders", "TimeoutError", 8)
    assert kind["example"] == "the bank is slow"
    assert len(found.samples) == 5
    assert {json.loads(one["body"])["n"] % 3 for one in found.samples} <= {1, 2}
    assert not state.exists()
    assert sent_back(lab) == [0] * 18
    assert lab.admin.audit() == []

    every = redrive(pipeline.spark, "g", EVERYTHING, **where_is(lab), dry_run=True)
    assert {(kind["topic"], kind["error_type"], kind["count"]) for kind in every.kinds} == {
        ("orders", "TimeoutError", 8),
        ("orders", "ValueError", 4),
        ("refunds", "TimeoutError", 4),
        ("refunds", "ValueError", 2),
    }
    first = {(one["topic"], one["error_type"]) for one in every.samples[:4]}
    assert len(first) == 4


@pytest.mark.campaign
def test_what_was_chosen_goes_back_and_the_audit_record_says_why(
    pipeline: Pipeline, lab: Lab, tmp_path: Path
) -> None:
    given = where_is(lab) | {"state": str(tmp_path)}
    found = redrive(pipeline.spark, "g", TIMEOUTS, **given)
    assert (found.chosen, found.sent, found.left, found.resumed) == (8, 8, 0, False)
    (entry,) = lab.admin.audit()
    assert (entry.verb, entry.counts) == ("redrive", {"sent": 8})
    assert entry.arguments == {"group": "g", "where": TIMEOUTS, "chosen": 8}
    assert not list(tmp_path.iterdir())
    lab.run_until_idle()
    assert sorted(sent_back(lab)) == [0] * 10 + [1] * 8

    again = redrive(pipeline.spark, "g", TIMEOUTS, **given)
    assert (again.sent, again.resumed) == (8, False)  # all was sent: this is a choice of its own


def test_a_run_that_is_killed_again_and_again_sends_none_twice(lab: Lab, tmp_path: Path) -> None:
    record = Record(str(tmp_path), lab.client, "g", EVERYTHING)
    everything(lab, record)
    left = []
    for calls in (0, 1, 2):  # there are four places, so four calls would send all
        kill_at_call(lab, tmp_path, EVERYTHING, calls)
        choice = record.read()
        assert choice is not None
        left.append(still_dead(lab.client, choice, record))
        lab.run_until_idle()  # what was sent dies again, and is not to be sent again
    assert left[0] == 18 > left[1] > left[2] > 0

    found = go_on(lab, tmp_path)
    assert (found.resumed, found.chosen, found.sent) == (True, 18, left[2])
    assert found.before == 18 - left[2]
    (entry,) = lab.admin.audit()  # those that were killed wrote nothing there
    assert (entry.counts["sent"], entry.arguments["sent_before"]) == (left[2], found.before)
    lab.run_until_idle()
    assert sent_back(lab) == [1] * 18
    assert record.read() is None


@pytest.mark.campaign
def test_a_run_that_was_killed_after_all_was_sent_sends_nothing(lab: Lab, tmp_path: Path) -> None:
    record = Record(str(tmp_path), lab.client, "g", EVERYTHING)
    everything(lab, record)
    lab.admin.redrive("g", all=True)
    lab.run_until_idle()
    found = go_on(lab, tmp_path)
    assert (found.resumed, found.sent, found.before, found.left) == (True, 0, 18, 0)
    assert sent_back(lab) == [1] * 18
    assert record.read() is None


@pytest.mark.campaign
def test_a_run_that_goes_on_keeps_the_rate_of_both_together(lab: Lab, tmp_path: Path) -> None:
    record = Record(str(tmp_path), lab.client, "g", EVERYTHING)
    everything(lab, record)
    ids = [dead_letter.id for dead_letter in record.chosen()]
    lab.admin.redrive("g", ids=ids[:6], rate="1/m")

    choice = record.read()
    assert choice is not None
    dead = still_dead(lab.client, choice, record)
    found = send(lab.client, choice, record, Pace(rate="1/m"), dead)

    assert (found.before, found.sent) == (6, 12)
    states = [lab.admin.message(id_).states[0] for id_ in ids]
    due = sorted(state.due_ms for state in states if state.due_ms is not None)
    assert len(due) == 17  # the first one waits for nothing
    assert {later - earlier for earlier, later in pairwise(due)} == {60_000}
    assert found.due_in == 17 * 60


@pytest.mark.campaign
def test_canaries_that_nobody_handles_stop_it_and_the_next_run_goes_on(
    lab: Lab, tmp_path: Path
) -> None:
    record = Record(str(tmp_path), lab.client, "g", EVERYTHING)
    everything(lab, record)
    stopped = go_on(lab, tmp_path, canary=3, canary_timeout=0.2)
    assert (stopped.sent, stopped.canaries, stopped.left) == (3, 3, 15)
    assert "3 of 3 canaries were not done in time" in stopped.reason
    lab.run_until_idle()
    found = go_on(lab, tmp_path)
    assert (found.resumed, found.before, found.sent, found.reason) == (True, 3, 15, "")
    lab.run_until_idle()
    assert sent_back(lab) == [1] * 18


@pytest.mark.campaign
def test_a_fresh_run_forgets_what_an_earlier_one_chose(
    pipeline: Pipeline, lab: Lab, tmp_path: Path
) -> None:
    record = Record(str(tmp_path), lab.client, "g", TIMEOUTS)
    where = where_is(lab) | {"chosen_path": record.chosen_path}
    record.write(choose(pipeline.spark, "g", TIMEOUTS, **where))
    lab.admin.redrive("g", ids=[dead_letter.id for dead_letter in lab.admin.dead_letters("g")])
    lab.run_until_idle()
    found = redrive(pipeline.spark, "g", TIMEOUTS, **where_is(lab), state=str(tmp_path), fresh=True)
    assert (found.resumed, found.sent) == (False, 8)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("nothing = 1", "is not a condition over dead letters: .*`nothing` cannot be resolved"),
        ("id = ", "is not a condition over dead letters: Syntax error"),
        ("deliveries", "is not a condition over dead letters: .* is not a boolean"),
        ("cast(body AS int) = 1", "fails on a dead letter: .*cannot be cast"),
    ],
)
def test_a_condition_that_is_none_is_one_sentence(
    pipeline: Pipeline, lab: Lab, where: str, shown: str
) -> None:
    with pytest.raises(InvalidArgument, match=shown) as caught:
        redrive(pipeline.spark, "g", where, **where_is(lab), dry_run=True)
    assert "\n" not in str(caught.value)
    assert "SQLSTATE" not in str(caught.value)


@pytest.mark.campaign
def test_a_group_or_server_that_is_not_there_and_a_bad_pace_are_one_sentence(
    pipeline: Pipeline, lab: Lab
) -> None:
    with pytest.raises(GroupNotFound, match="'none'"):
        redrive(pipeline.spark, "none", EVERYTHING, **where_is(lab))
    with pytest.raises(StoreUnavailable) as caught:
        redrive(pipeline.spark, "g", EVERYTHING, url="redis://:s3cret@127.0.0.1:1")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="rate 'fast'"):
        redrive(pipeline.spark, "g", EVERYTHING, **where_is(lab), rate="fast")


def test_a_record_that_is_damaged_and_a_folder_in_use_are_one_sentence(
    lab: Lab, tmp_path: Path
) -> None:
    record = Record(str(tmp_path), lab.client, "g", EVERYTHING)
    record.path.write_text("{")
    with pytest.raises(ConfigError, match=r"cannot be read: .*; choose again with --fresh"):
        go_on(lab, tmp_path)
    everything(lab, record)
    with record.alone(), pytest.raises(ConfigError, match=r"another redrive .* is under way"):
        go_on(lab, tmp_path)
    for damage in ("", "orders\t0\n"):
        record.chosen_path.write_text(damage)
        with pytest.raises(ConfigError, match=r"cannot be read: .*; choose again with --fresh"):
            go_on(lab, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be"):
        go_on(lab, tmp_path / "file")
    assert sent_back(lab) == [0] * 18


@pytest.mark.campaign
def test_the_command_previews_sends_and_says_what_it_did(
    pipeline: Pipeline, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.spark, "stop", lambda: None)  # it is that of all tests
    monkeypatch.setattr("rqretry.spark.sessions.session", lambda *_: pipeline.spark)
    request_parts = ["redrive", "g", "--where", TIMEOUTS, "--state", str(tmp_path), "--yes"]
    request_parts += ["--url", lab.url, "--namespace", parts_of(lab.client).settings.namespace]

    def run(*more: str) -> str:
        answer = CliRunner().invoke(command, [*request_parts, *more], standalone_mode=False)
        assert answer.exception is None, answer.output
        return answer.stdout

    tried = json.loads(run("--json", "--dry-run"))
    assert (tried["verb"], tried["count"], tried["chosen"], tried["dry_run"]) == (
        "redrive", 8, 8, True,
    )  # fmt: skip
    assert tried["kinds"][0]["count"] == 8
    stated = run("--dry-run", "--canary", "5", "--rate", "50/s")
    assert stated.startswith("8 dead letters of group g\n")
    assert "TimeoutError: the bank is slow" in stated
    assert stated.endswith("8 dead letters of group g would be sent back\n")
    assert "at 50/s: the last one is due in 140 ms" in run("--rate", "50/s")
