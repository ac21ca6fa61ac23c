"""The demo on Spark: its folder, the whole run, and an interrupt in the middle of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from rqretry.core.errors import ConfigError
from rqretry.demo import command
from rqretry.demo.jobs import make_room
from rqretry.demo.proof import ArchiveReport, Proof, compare
from rqretry.demo.topology import CLAIMS_GROUP
from rqretry.testing.embedded_redis import EmbeddedRedis

ROWS = 2_000
DEAD = {"cancelled": 12, "no arrival delay": 14}
DEMO = (sys.executable, "-m", "rqretry.cli.main", "demo")


def test_what_an_earlier_demo_left_is_replaced_and_nothing_else_is_touched(tmp_path: Path) -> None:
    ours = make_room(tmp_path / "new" / "demo")
    (ours / "archive" / "topic=flights").mkdir(parents=True)
    (ours / "notes.txt").write_text("mine")

    assert make_room(ours) == ours
    assert sorted(path.name for path in ours.iterdir()) == [".rqretry-demo", "notes.txt"]


def test_a_folder_that_no_demo_wrote_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "precious").touch()

    with pytest.raises(ConfigError, match="has files that no demo wrote: name an empty one"):
        make_room(tmp_path)
    assert (tmp_path / "archive" / "precious").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot be written \(Not a directory\): name another"):
        make_room(tmp_path / "file" / "demo")


def test_without_spark_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)

    with pytest.raises(ConfigError, match="--spark needs Spark: run pip install"):
        command._pipeline(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_the_demo_without_spark_imports_none_of_it() -> None:
    program = (
        "import sys; from rqretry.demo import command, report, run;"
        " print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    request_parts = (sys.executable, "-c", program)
    done = subprocess.run(request_parts, capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr


PROOF = Proof({}, {1: 5, 3: 2}, 2, {"cancelled": 4})
REPORTED = ArchiveReport(Path("report.html"), {"cancelled": 4}, {3: 2, 1: 5})


def test_a_report_that_says_the_same_differs_in_nothing() -> None:
    assert compare(PROOF, REPORTED) == []


def test_a_report_that_narrows_else_is_reported() -> None:
    (dead,) = compare(PROOF, replace(REPORTED, dead={"cancelled": 3}))
    (tried,) = compare(PROOF, replace(REPORTED, succeeded={1: 7}))

    assert dead == "the report has the dead letters {'cancelled': 3}, and not {'cancelled': 4}"
    assert tried.endswith("by attempt {1: 7}, and not {1: 5, 3: 2}")


# -- with a real Spark ------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as running:
        yield running


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_demo_on_spark_counts_as_without_and_its_report_agrees(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    request_parts = ("--rows", str(ROWS), "--json", "--redis", server.url, "--spark", "out")
    run = subprocess.run(
        (*DEMO, *request_parts), cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert (answer["rows"], answer["conserved"], answer["dead_reasons"]) == (ROWS, True, DEAD)
    claims = answer["groups"][CLAIMS_GROUP]
    assert (claims["published"], claims["committed"], claims["dead"]) == (ROWS, ROWS - 26, 26)
    assert run.stderr.splitlines()[-1] == f"report: {tmp_path}/out/report/report.html"
    assert answer["report"] == f"{tmp_path}/out/report/report.html"
    assert "Traceback" not in run.stderr
    check_report(tmp_path / "out", claims["attempts_histogram"], answer["archived_events"])


def check_report(folder: Path, histogram: dict[str, int], events: int) -> None:
    assert pq.read_table(folder / "archive", columns=["offset"]).num_rows == events
    dead = pq.read_table(folder / "report" / "dead.parquet").to_pylist()
    assert {row["example"]: row["dead"] for row in dead} == DEAD
    attempts = pq.read_table(folder / "report" / "attempts.parquet").to_pylist()
    succeeded = {r["attempt"]: r["succeeded"] for r in attempts if r["group"] == CLAIMS_GROUP}
    succeeded[17] = succeeded.get(17, 0) + sum(DEAD.values())
    assert {str(n): count for n, count in succeeded.items() if count} == histogram


JAVA_SAYS = "WARNING: Using incubator modules: jdk.incubator.vector"
"""What a Java of some version says when Spark starts it, whatever is asked of it."""


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_demo_on_spark_without_a_word_and_without_leaving_anything(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    request_parts = ("--rows", str(ROWS), "--redis", server.url, "--spark", "out")
    demo = subprocess.Popen(
        (*DEMO, *request_parts),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with demo:
        wait_for(lambda: any((tmp_path / "out" / "archive").glob("topic=*/*/*.parquet")))
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: to every process
        _, errors = demo.communicate()

    assert demo.returncode == 1
    shown = [line for line in errors.splitlines() if line and line != JAVA_SAYS]
    assert shown == []
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        assert client.keys() == []
    wait_for(lambda: not alive(demo.pid))


def alive(session: int) -> list[str]:
    """The processes of a session."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(path.parent.name)
    return found


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)
