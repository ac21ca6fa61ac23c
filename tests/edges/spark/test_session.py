"""Sessions: a machine without Java, a real master and worker, and secrets that stay secret."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import redis

from rqretry import App, Client
from rqretry.spark import java, sessions
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.spark.cluster import standalone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SECRET = "s3cret-canary"
PROGRAM = Path(__file__).with_name("every_verb.py")


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as running:
        yield running


@pytest.fixture
def lab(server: EmbeddedRedis) -> Iterator[Lab]:
    """Twelve messages of group g, of which eight died of a timeout; then the server is locked."""
    app = App()

    @app.consumer("orders", group="g", max_retries=0)
    def fail(body: dict[str, int]) -> None:
        if body["n"] % 3:
            raise TimeoutError("the bank is slow")

    with Lab(server=server) as lab:
        lab.app(app)
        lab.publish_many("orders", [{"n": n} for n in range(12)])
        lab.run_until_idle()
        with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
            client.config_set("requirepass", SECRET)
            yield lab
            client.config_set("requirepass", "")


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_every_job_runs_on_a_real_master_and_worker_and_the_password_is_nowhere(
    lab: Lab, server: EmbeddedRedis, tmp_path: Path
) -> None:
    """Not in a plan, a log, a file of theirs or a page of the UI; also of redrive and simulate."""
    java.prepare_environment()
    (tmp_path / "log").mkdir()
    (tmp_path / "rows.csv").write_text("n\n" + "\n".join(map(str, range(200))) + "\n")
    url = f"unix://:{SECRET}@{server.socket_path}"
    with standalone(tmp_path / "work") as master:
        request_parts = [sys.executable, str(PROGRAM), master, url, lab.namespace, str(tmp_path)]
        done = subprocess.run(
            request_parts, capture_output=True, text=True, timeout=1000, check=False
        )
    assert done.returncode == 0, done.stderr[-5000:]
    answer = json.loads(done.stdout.rpartition("RESULT ")[2])
    check_answer(answer, master)
    with Client(url, namespace=lab.namespace) as client:
        assert client.admin.stats("flights").backlog == 200
        dead_records = client.admin.dead_letters("g")
        assert dead_records == []
    check_secrecy(tmp_path, done.stdout + done.stderr)


def check_answer(answer: dict[str, Any], master: str) -> None:
    assert answer["master"] == master
    assert (answer["published"], answer["known"]) == (200, 200)
    # What redrive did came after the archive.
    assert (answer["archived"], answer["history"]) == (336, 344)
    for name in ("live", "report"):
        (group,) = answer[name]
        assert (group["messages"], group["committed"], group["dead"]) == (12, 4, 8)
    assert answer["chosen"] == 8
    sent = answer["sent"]
    assert (sent["sent"], sent["left"], sent["kinds"][0]["count"]) == (8, 0, 8)
    assert answer["policies"][0] == [None, "observed"]
    assert {policy for policy, _ in answer["policies"]} == {None, "fixed:1s", "rocketmq"}


def check_secrecy(folder: Path, shown: str) -> None:
    assert "== Physical Plan ==" in shown
    assert SECRET not in shown
    files = [path for path in folder.rglob("*") if path.is_file()]
    read = {path: path.read_bytes() for path in files}
    assert [path for path, content in read.items() if SECRET.encode() in content] == []
    kinds = [path.relative_to(folder).parts[0] for path in files]
    assert {"ui", "log", "work", "archive", "report"} <= set(kinds)
    # It was looked for where it would be: these have the plans, options and all.
    for place in ("ui", "log"):
        texts = b"".join(read[path] for path in files if place in path.parts)
        assert b"rqretry" in texts
        assert b"dead_letters" in texts


@pytest.mark.campaign
def test_without_java_the_one_of_the_wheel_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "from rqretry.spark import session; import os;"
        " spark = session(config={'spark.default.parallelism': '1'});"
        " print('JAVA', os.environ['JAVA_HOME'],"
        " spark.range(3).mapInArrow(lambda rows: rows, 'id long').count())"
    )
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("sh", "bash", "dirname", "ls", "cat", "ps", "env", "uname", "tr", "basename"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (bin_ / name).exists():
                (bin_ / name).symlink_to(Path(folder, name))
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PYSPARK_PYTHON", "PATH")
    }
    request_parts = [sys.executable, "-c", program]
    done = subprocess.run(
        request_parts,
        env={**environment, "PATH": str(bin_)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "JAVA" in done.stdout, done.stderr
    assert "rqretry-java-" in done.stdout
    assert done.stdout.split()[-1] == "3"


@pytest.mark.parametrize(
    ("environment", "config", "heap"),
    [
        ({}, {}, "512m"),
        ({}, {"spark.driver.memory": "4g"}, None),
        ({}, {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}, None),
        ({"SPARK_DRIVER_MEMORY": "2g"}, {}, "2g"),
    ],
)
def test_a_job_on_this_machine_has_a_small_java_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    config: dict[str, str],
    heap: str | None,
) -> None:
    seen: list[tuple[str | None, dict[str, str]]] = []

    def open_session(_name: str, _master: str | None, given: dict[str, str]) -> Mock:
        seen.append((os.environ.get("SPARK_DRIVER_MEMORY"), given))
        return Mock()

    monkeypatch.setattr(sessions, "session", open_session)
    with patch.dict(os.environ, environment), sessions.session_for("job", None, config):
        pass

    small = {"spark.driver.defaultJavaOptions": "-XX:+UseSerialGC"} if heap == "512m" else {}
    assert seen == [(heap, small | config)]
