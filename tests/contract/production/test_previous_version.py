"""The commit before this one, beside this tree: both publish and consume on one server."""

import io
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from rqretry import Client
from rqretry.core.catalog_records import SCHEMA
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import missing
from tests.contract.production.conftest import NAMESPACE, ROOT, until
from tests.support.soundness import assert_sound

pytestmark = pytest.mark.chaos

EACH = 300
PROGRAM = """
import asyncio, sys
import redis.asyncio
import rqretry
from rqretry import App, RetryPolicy

root, url, path, namespace, name, each = sys.argv[1:]
assert rqretry.__file__.startswith(root), rqretry.__file__
app = App(url, namespace=namespace)
ledger = redis.asyncio.Redis(unix_socket_path=path)

@app.consumer("flights", group="claims", policy=RetryPolicy.fixed("50ms"), max_retries=3)
async def settle(message):
    n = message.body["n"]
    if n % 10 == 0 or (n % 3 == 0 and message.attempt == 1):
        raise ValueError("not known yet")
    await ledger.rpush("handled", f"{name} {message.body['by']} {n}")

async def main():
    worker = asyncio.create_task(app.run(signals=False))
    stopped = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for n in range(int(each)):
        await app.publish("flights", {"n": n, "by": name})
        await asyncio.sleep(0.005)
    await asyncio.wait([worker, stopped], return_when=asyncio.FIRST_COMPLETED)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await app.aclose()

asyncio.run(main())
"""


def archived(commit: str) -> bytes | None:
    """Its files as tar; None where it is not there."""
    command = ["git", "-C", str(ROOT), "archive", commit, "rqretry", "lua"]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commit before, as files."""
    archive = archived("HEAD~1")
    if archive is None:  # a clone of one commit, which .ci/run could not deepen: beside itself
        archive = archived("HEAD")
    if archive is None:
        missing("this is no clone: there is no commit before")
    assert archive is not None
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def schema_of(root: Path) -> int:
    text = (root / "rqretry" / "core" / "catalog_records.py").read_text()
    return int(re.findall(r"^SCHEMA = (\d+)", text, flags=re.MULTILINE)[0])


def environment(root: Path) -> dict[str, str]:
    """Of a program; that of this tree is changed as the tests' own is (tests/meta/mutation)."""
    own = os.environ if root == ROOT else {"PATH": "/usr/bin:/bin"}
    before = [own["PYTHONPATH"]] if "PYTHONPATH" in own else []
    return {**own, "PYTHONPATH": os.pathsep.join([*before, str(root)])}


def started(root: Path, server: EmbeddedRedis, name: str) -> "subprocess.Popen[bytes]":
    request_parts = [str(root), server.url, str(server.socket_path), NAMESPACE, name, str(EACH)]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *request_parts],
        cwd=root,
        env=environment(root),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_version_before_works_beside_this_one(previous: Path) -> None:
    if schema_of(previous) != SCHEMA:
        return  # then it must not: see the next test
    with (
        EmbeddedRedis() as server,
        redis.Redis(unix_socket_path=str(server.socket_path), decode_responses=True) as raw,
        Client(server.url, namespace=NAMESPACE) as client,
    ):
        both = [started(previous, server, "old"), started(ROOT, server, "new")]
        handled: Any = raw
        dead = 2 * EACH // 10
        try:
            until(lambda: _ended(both) or handled.llen("handled") >= 2 * EACH - dead)
            until(lambda: _ended(both) or _dead(client) == dead)
        finally:
            errors = _end(both)
        rows = [row.split() for row in handled.lrange("handled", 0, -1)]
        assert Counter((by, int(n)) for _, by, n in rows) == Counter(
            (by, n) for by in ("old", "new") for n in range(EACH) if n % 10
        )
        pairs = Counter((handler, by) for handler, by, _ in rows)
        assert len(pairs) == 4, f"each handles what each publishes: {pairs}"
        assert [process.returncode for process in both] == [0, 0], errors
        assert_sound(parts_of(client).store, NAMESPACE)


def test_a_version_of_an_older_schema_refuses_what_this_one_keeps(previous: Path) -> None:
    records = previous / "rqretry" / "core" / "catalog_records.py"
    text = records.read_text()
    records.write_text(re.sub(r"^SCHEMA = \d+", f"SCHEMA = {SCHEMA - 1}", text, flags=re.MULTILINE))
    try:
        with EmbeddedRedis() as server, Client(server.url, namespace=NAMESPACE) as client:
            client.publish("flights", {"n": 1, "by": "new"})
            old = started(previous, server, "old")
            errors = old.communicate(timeout=60)[1].decode()
            assert old.returncode != 0
            assert f"has schema {SCHEMA}, written by a newer rqretry" in errors
            assert client.admin.stats().topics[0].stored == 1
    finally:
        records.write_text(text)


def _dead(client: Client) -> int:
    return sum(topic.groups[0].dead for topic in client.admin.stats().topics if topic.groups)


def _ended(both: "list[subprocess.Popen[bytes]]") -> bool:
    return any(process.poll() is not None for process in both)


def _end(both: "list[subprocess.Popen[bytes]]") -> str:
    errors = [process.communicate(timeout=30)[1].decode() for process in both]
    return "\n".join(errors)
