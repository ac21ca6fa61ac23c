"""A dead letter of the demo on a developer's desk: replayed as a test, fixed, and sent back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.demo import claims
from rqretry.demo.feed import Feed
from rqretry.demo.flights import load
from rqretry.demo.topology import CLAIMS_GROUP, FLIGHTS, LEVELS
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import until

ROOT = Path(__file__).parents[3]
NAMESPACE = "replayed"
BROKEN = "if await _book().settle(message):"
FIXED = 'if message.body["dep_time"] is None or await _book().settle(message):'


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def desk(tmp_path: Path, server: EmbeddedRedis) -> Iterator["Desk"]:
    """The demo's app as a developer has it."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        connection.flushall()
    with Client(server.url, namespace=NAMESPACE, delay_levels=LEVELS) as client:
        yield Desk(tmp_path, client, server.url)


class Desk:
    """A folder with a copy of the app, and the server where its messages died."""

    def __init__(self, folder: Path, client: Client, url: str) -> None:
        self.folder = folder
        self.client = client
        self.app = folder / "shop.py"
        self.app.write_text(Path(str(claims.__file__)).read_text())
        ours = {"RQRETRY_REDIS_URL": url, "RQRETRY_NAMESPACE": NAMESPACE, "COLUMNS": "200"}
        self._environment = os.environ | ours | {"PYTHONPATH": str(ROOT)}

    def run(self, *request_parts: str) -> subprocess.CompletedProcess[str]:
        """A program in the folder, to its end."""
        return subprocess.run(
            [sys.executable, *request_parts],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def rqretry(self, *request_parts: str) -> subprocess.CompletedProcess[str]:
        """A command on the server."""
        return self.run("-m", "rqretry", *request_parts)

    def worker(self) -> "subprocess.Popen[str]":
        """The app, working until it is told to stop."""
        return subprocess.Popen(
            [sys.executable, "-m", "rqretry", "worker", "shop:app"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def fix(self) -> None:
        """Repair the handler."""
        text = self.app.read_text()
        assert BROKEN in text
        self.app.write_text(text.replace(BROKEN, FIXED))


async def replay_fix_and_redrive(desk: Desk) -> None:
    """From a dead letter to a commit, as a developer does it."""
    dead_records = desk.client.admin.dead_letters(CLAIMS_GROUP, error="cancelled")
    id_ = dead_records[0].id
    request_parts = (CLAIMS_GROUP, id_, "--app", "shop:app")
    seen = desk.rqretry("dlq", "replay", *request_parts)
    assert seen.returncode == 1
    assert "cancelled" in seen.stdout and "as when it died" in seen.stdout

    written = desk.rqretry("dlq", "replay", *request_parts, "--as-test", "test_claim.py")
    assert (written.returncode, written.stdout) == (0, ""), written.stderr
    test = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_claim.py")
    failed = desk.run(*test)
    assert failed.returncode == 1, failed.stdout
    assert "1 failed" in failed.stdout
    assert "cancelled" in failed.stdout, "for the same reason"
    desk.fix()
    passed = desk.run(*test)
    assert passed.returncode == 0, passed.stdout

    sent = desk.rqretry("dlq", "redrive", CLAIMS_GROUP, "--ids", id_, "--yes")
    assert sent.returncode == 0, sent.stderr
    worker = desk.worker()
    try:
        await until(
            lambda: desk.client.admin.explain(id_)[CLAIMS_GROUP].startswith("committed"), 60
        )
    finally:
        worker.terminate()
        worker.wait(30)
    left = desk.client.admin.dead_letters(CLAIMS_GROUP)
    assert id_ not in {dead_record.id for dead_record in left}


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_a_dead_claim_is_replayed_as_a_test_fixed_and_committed(desk: Desk) -> None:
    cancelled = next(flight for flight in load(2_000) if flight.expected == "cancelled")
    join = parts_of(desk.client).catalog.join(CLAIMS_GROUP, "push", [FLIGHTS], max_retries=0)
    parts_of(desk.client).store.perform(join)
    desk.client.admin.set_group(CLAIMS_GROUP, max_retries=0, pin=True)
    Feed(desk.client, lambda: pytest.fail("nothing to watch")).publish_claims([cancelled])
    worker = desk.worker()
    try:
        await until(lambda: desk.client.admin.stats(FLIGHTS, CLAIMS_GROUP).dead == 1, 60)
    finally:
        worker.terminate()
        worker.wait(30)
    await replay_fix_and_redrive(desk)


@pytest.mark.campaign
@pytest.mark.timeout(600)
async def test_a_dead_letter_of_the_demo_itself_is_replayed_fixed_and_committed(
    desk: Desk,
) -> None:
    namespace = ("--namespace", NAMESPACE, "--keep")
    kept = desk.run("-m", "rqretry", "demo", "--rows", "2000", *namespace)
    assert kept.returncode == 0, kept.stderr
    assert "kept: rqretry dlq list claims --by message" in kept.stderr
    await replay_fix_and_redrive(desk)


async def test_keep_needs_a_server_that_stays(desk: Desk) -> None:
    stated = desk.run("-m", "rqretry", "demo", "--rows", "30", "--redis", "embedded", "--keep")
    assert (stated.returncode, stated.stdout) == (2, "")
    assert "--keep needs a server that stays" in stated.stderr
