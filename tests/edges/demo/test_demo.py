"""The demo from start to end, and what its end report would say if something were lost."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from rqretry.admin.views import GroupStats
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.envelope import decode
from rqretry.core.failure_record import AttemptError
from rqretry.core.parts import parts_of
from rqretry.demo import flights as source
from rqretry.demo.book import Effect
from rqretry.demo.command import load_default
from rqretry.demo.feed import Feed, Pace
from rqretry.demo.flights import Flight, load, sample_size
from rqretry.demo.proof import Evidence, prove
from rqretry.demo.topology import ARRIVALS, BOOK_GROUP, CLAIMS_GROUP, FLIGHTS, Progress
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import NAMESPACE, Lab

ROWS = 2_000
DEAD = {"cancelled": 12, "no arrival delay": 14}
DEMO = (sys.executable, "-m", "rqretry.cli.main", "demo")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def lab(redis_server: EmbeddedRedis) -> Iterator[Lab]:
    lab = Lab(redis_server)
    lab.redis.flushall()
    yield lab
    lab.redis.close()


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*DEMO, *arguments), capture_output=True, text=True, check=False)


def test_the_demo_settles_2000_flights_and_proves_that_nothing_was_lost(lab: Lab) -> None:
    lab.redis.set("somebody-elses", "key")

    run = run_demo("--rows", str(ROWS), "--json", "--redis", lab.url)

    assert run.returncode == 0, run.stderr
    assert "nothing was lost" in run.stderr
    report = json.loads(run.stdout)
    assert list(report) == [
        "rows",
        "groups",
        "dead_reasons",
        "redriven_committed",
        "conserved",
        "seconds",
        "messages_per_second",
    ]
    assert report["rows"] == ROWS
    assert report["dead_reasons"] == DEAD
    assert report["redriven_committed"] == 10
    assert report["conserved"] is True
    assert report["seconds"] > 17.14  # the whole ladder
    assert report["messages_per_second"] > 0
    assert report["groups"].keys() == {BOOK_GROUP, CLAIMS_GROUP}
    dead = sum(DEAD.values())
    check_group(report["groups"][CLAIMS_GROUP], published=ROWS, dead=dead)
    check_group(report["groups"][BOOK_GROUP], published=ROWS - dead, dead=0)
    assert report["groups"][CLAIMS_GROUP]["attempts_histogram"]["17"] == dead
    assert lab.redis.keys() == [b"somebody-elses"]


def check_group(group: dict[str, Any], *, published: int, dead: int) -> None:
    assert list(group) == ["published", "committed", "dead", "retries", "attempts_histogram"]
    assert (group["published"], group["dead"]) == (published, dead)
    assert group["committed"] == published - dead
    deliveries = {int(number): count for number, count in group["attempts_histogram"].items()}
    assert sum(deliveries.values()) == published
    assert group["retries"] == sum((number - 1) * count for number, count in deliveries.items())


def test_without_json_the_report_is_a_table_and_the_embedded_server_is_gone() -> None:
    run = run_demo("--rows", "30", "--redis", "embedded", "--processes", "1")

    assert run.returncode == 0, run.stderr
    assert "claims" in run.stdout
    assert run.stdout.endswith("nothing was lost\n")
    assert "\x1b" not in run.stdout
    assert run.stderr == ""


@pytest.mark.usefixtures("interruptible")
def test_a_demo_that_is_interrupted_leaves_no_data_and_no_processes(lab: Lab) -> None:
    demo = subprocess.Popen(
        (*DEMO, "--rows", str(ROWS), "--redis", lab.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with demo:
        wait_for(lambda: any(lab.redis.keys("demo:*")))
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate()

    assert demo.returncode == 1
    assert "Traceback" not in errors
    assert lab.redis.keys() == []
    wait_for(lambda: len(lab.redis.client_list()) == 1)  # ours: no worker is left


def test_a_namespace_in_use_is_refused_and_left_alone(lab: Lab) -> None:
    lab.client().publish("orders", {"id": 1})
    before = sorted(lab.redis.keys())

    run = run_demo("--rows", "30", "--redis", lab.url, "--namespace", NAMESPACE)

    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("Error: namespace 'test' is in use")
    assert sorted(lab.redis.keys()) == before


@pytest.mark.parametrize("rows", ["0", "-1", "many", "1.5", ""])
def test_rows_must_be_a_number_from_1_or_all(rows: str) -> None:
    run = run_demo("--rows", rows)

    assert (run.returncode, run.stdout) == (2, "")
    assert "must be a number from 1, or all" in run.stderr


def test_no_published_claim_says_anything_that_is_known_only_on_arrival(lab: Lab) -> None:
    client = lab.client()
    flights = load(ROWS)
    feed = Feed(client, lambda: pytest.fail("nothing to watch"))

    feed.publish_claims(flights)
    feed.publish_arrivals(flight.arrival for flight in flights if flight.arrival)

    client.simple_consumer([FLIGHTS, ARRIVALS], group="test", create_group=True)
    bodies: Any = lab.redis.hgetall(parts_of(client).catalog.partition(FLIGHTS, 0).bodies)
    claims = [decode(data).body for data in bodies.values()]
    assert len(claims) == ROWS
    for claim in claims:
        assert not [key for key in claim if key.startswith("arr_") or key == "air_time"]
    arrivals = lab.redis.hlen(parts_of(client).catalog.partition(ARRIVALS, 0).bodies)
    assert arrivals == feed.arrivals == ROWS - sum(DEAD.values())


# -- the report, when something is wrong -----------------------------------------------------


def truthful(flights: Sequence[Flight]) -> Evidence:
    """What is seen when all went well, with one delivery for each flight that arrived."""
    arrived = [f.id for f in flights if f.expected == "committed"]
    entries = [Effect(id_, 1, 1) for id_ in arrived]
    dead = [dead_record(f.id, f.expected) for f in flights if f.expected != "committed"]
    return Evidence(entries, entries, dead, [], (len(flights), len(arrived)), state())


def dead_record(id_: str, reason: str, attempt: int = 17) -> DeadLetterRecord:
    error = AttemptError(attempt, 0, "failure", message=reason)
    return DeadLetterRecord(
        id_, FLIGHTS, CLAIMS_GROUP, None, b"", None, (), {}, 0, attempt, "failure", 0, (error,)
    )


def state(ready: int = 0, **counters: int) -> Progress:
    claims = GroupStats(CLAIMS_GROUP, "push", ready, 0, 0, (), 0, None, False, 1, counters)
    return Progress(claims, GroupStats(BOOK_GROUP, "push", 0, 0, 0, (), 0, None, False, 1, {}))


FLIGHTS_OF_TEST = load(ROWS)
SEEN = truthful(FLIGHTS_OF_TEST)
FIRST = SEEN.settled[0]
AGAIN = Effect(FIRST.flight_id, 2, 2)


def test_the_truth_is_proved() -> None:
    proof = prove(FLIGHTS_OF_TEST, SEEN)

    assert (proof.lost, proof.wrong, proof.conserved) == ([], [], True)
    assert proof.dead_reasons == DEAD


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        (replace(SEEN, settled=SEEN.settled[1:]), "1 flights are neither committed nor dead"),
        (replace(SEEN, dead_claims=SEEN.dead_claims[1:]), "1 flights are neither committed nor"),
        (
            replace(
                SEEN, dead_claims=[*SEEN.dead_claims, dead_record(FIRST.flight_id, "cancelled")]
            ),
            "1 flights are both committed and dead",
        ),
        (
            replace(SEEN, dead_claims=[*SEEN.dead_claims, dead_record("nobody", "cancelled")]),
            "1 flights are not in the file: nobody",
        ),
        (replace(SEEN, booked=SEEN.booked[1:]), "1 flights are arrived and not in the book"),
        (
            replace(SEEN, booked=[*SEEN.booked, Effect("nobody", 1, 1)]),
            "1 flights are in the book and did not arrive",
        ),
        (replace(SEEN, settled=[*SEEN.settled, FIRST]), "1 deliveries took effect twice"),
        (replace(SEEN, settled=[*SEEN.settled, AGAIN]), "1 effects happened again, and only 0"),
        (replace(SEEN, published=(1999, 1974)), "published (1999, 1974)"),
        (replace(SEEN, last=state(ready=1)), "1 messages are unfinished"),
    ],
)
def test_what_is_lost_is_reported(seen: Evidence, shown: str) -> None:
    proof = prove(FLIGHTS_OF_TEST, seen)

    assert not proof.conserved
    assert any(shown in line for line in proof.lost), proof.lost


def test_an_effect_that_happened_again_after_its_lease_expired_is_explained() -> None:
    proof = prove(
        FLIGHTS_OF_TEST,
        replace(SEEN, settled=[*SEEN.settled, AGAIN], last=state(expire=1)),
    )

    assert (proof.conserved, proof.explained_duplicates) == (True, 1)


@pytest.mark.parametrize(
    ("dead", "shown"),
    [
        (dead_record(FIRST.flight_id, "cancelled"), "1 flights are dead, and must not be"),
        (dead_record(SEEN.dead_claims[0].id, "bad luck"), "1 flights are dead for another reason"),
        (
            dead_record(SEEN.dead_claims[0].id, SEEN.dead_claims[0].errors[-1].message, attempt=16),
            "1 flights are dead after another number of deliveries than 17",
        ),
    ],
)
def test_what_ended_in_another_way_than_the_file_says_is_reported(
    dead: DeadLetterRecord, shown: str
) -> None:
    proof = prove(FLIGHTS_OF_TEST, replace(SEEN, dead_claims=[*SEEN.dead_claims, dead]))

    assert any(shown in line for line in proof.wrong), proof.wrong


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


# -- the pace --------------------------------------------------------------------------------


def test_arrivals_wait_for_first_deliveries_and_the_next_block_for_the_workers(lab: Lab) -> None:
    flights = load(600)
    block = Pace().first
    at_each_look: list[tuple[int, int, int]] = []
    # Of the first block nothing, a little, enough is delivered; then the book catches up.
    states = [(block, 0), (block - 50, 0), (block // 2, 0), (0, block), (0, block // 5), (0, 0)]

    def look() -> Progress:
        ready, left = states.pop(0) if states else (0, 0)
        at_each_look.append((ready, feed.claims, feed.arrivals))
        seen = state(ready=ready)
        return Progress(seen.claims, replace(seen.book, ready=left))

    feed = Feed(lab.client(), look)
    feed.publish_all(flights)

    arrived = [sum(f.arrival is not None for f in flights[:n]) for n in (block, len(flights))]
    assert at_each_look[:5] == [
        (block, block, 0),
        (block - 50, block, 0),
        (block // 2, block, 0),
        (0, block, arrived[0]),
        (0, block, arrived[0]),
    ]
    assert (feed.claims, feed.arrivals) == (len(flights), arrived[1])


def test_without_the_full_data_the_default_is_the_sample_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "PACKAGE", "rqretry-no-such-distribution")
    console = Console(file=io.StringIO(), width=1000)

    flights = load_default(console)

    assert len(flights) == sample_size
    assert isinstance(console.file, io.StringIO)
    (line,) = console.file.getvalue().splitlines()
    assert "these are the 2000 rows of the sample" in line
