"""`rqretry dlq replay`: a production dead letter on the developer's machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis

pytestmark = pytest.mark.parametrize("server", ["redis-7"], indirect=True)
"""The verb says nothing to the server that other verbs don't; each test is several processes."""
ROOT = Path(__file__).parents[3]
NAMESPACE = "replay"
SHOP = """
from pathlib import Path
from rqretry import App, ConsumeResult, Message, RetryPolicy

app = App({url!r}, namespace={namespace!r})

@app.middleware
async def around(message, call_next):
    return await call_next(message)

@app.consumer("refunds", group="payout", policy=RetryPolicy.fixed("1ms", max_retries=2))
def pay(message: Message) -> None:
    shown = (message.attempt, message.headers["from"], message.last_error.message)
    Path(__file__).with_name("ran").write_text(repr(shown))
    if "iban" not in message.body:
        raise KeyError("iban")

@app.consumer("refunds", group="other", policy=RetryPolicy.fixed("1ms", max_retries=0))
def look(message: Message) -> ConsumeResult:
    return ConsumeResult.failure("not mine")
"""
WORK = """
import asyncio, sys; sys.path.insert(0, "."); import shop
from rqretry.core.parts import parts_of
async def main():
    worker = parts_of(shop.app).worker()
    task = asyncio.ensure_future(worker.run())
    while not sum(g.counters.get("succeed", 0) for g in (await shop.app.admin.stats()).groups):
        await asyncio.sleep(0.01)
    worker.stop(); await task; await shop.app.aclose()
asyncio.run(main())
"""
"""A worker until one message is committed. (The handler asks for the error before, so on the first
attempt after a redrive it fails once more.)"""
FIXED = ('raise KeyError("iban")', 'message.body["iban"] = "none"')


@pytest.fixture
def shop(tmp_path: Path, server: EmbeddedRedis) -> Path:
    """A folder with an app, whose one message has died."""
    text = SHOP.replace("{url!r}", repr(server.url)).replace("{namespace!r}", repr(NAMESPACE))
    (tmp_path / "shop.py").write_text(text)
    code = (
        "import asyncio, sys; sys.path.insert(0, '.'); import shop\n"
        "from rqretry.core.parts import parts_of\n"
        "async def main():\n"
        "    await shop.app.publish('refunds', {'claim': 7}, headers={'from': 'web'})\n"
        "    worker = parts_of(shop.app).worker()\n"
        "    task = asyncio.ensure_future(worker.run())\n"
        "    while sum([g.dead for g in (await shop.app.admin.stats()).groups]) < 1:\n"
        "        await asyncio.sleep(0.01)\n"
        "    worker.stop(); await task; await shop.app.aclose()\n"
        "asyncio.run(main())"
    )
    body = (tmp_path / "shop.py").read_text()
    (tmp_path / "shop.py").write_text(body.replace(", message.last_error.message", ""))
    done = run(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    (tmp_path / "shop.py").write_text(body)
    (tmp_path / "ran").unlink()
    return tmp_path


def run(folder: Path, *request_parts: str, shown: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *request_parts],
        cwd=folder,
        env=env,
        input=shown,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def replay(
    folder: Path, server: EmbeddedRedis, *request_parts: str, shown: str = ""
) -> subprocess.CompletedProcess[str]:
    target = ["--url", server.url, "--namespace", NAMESPACE, "--app", "shop:app"]
    program = ["-m", "rqretry", "dlq", "replay", "payout", dead_id(server), *target, *request_parts]
    return run(folder, *program, shown=shown)


def dead_id(server: EmbeddedRedis) -> str:
    with Client(server.url, namespace=NAMESPACE) as client:
        (dead_record,) = client.admin.dead_letters("payout")
        return dead_record.id


def numbers(server: EmbeddedRedis) -> tuple[int, int, dict[str, int]]:
    with Client(server.url, namespace=NAMESPACE) as client:
        (group,) = client.admin.stats(group="payout").groups
        return group.dead, group.inflight, group.counters


def fix(folder: Path) -> None:
    text = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(text.replace(*FIXED))


def test_it_runs_the_handler_as_at_the_last_attempt_and_settles_nothing(
    shop: Path, server: EmbeddedRedis
) -> None:
    before = numbers(server)
    failed = replay(shop, server)
    assert failed.returncode == 1
    assert "pay on message" in failed.stdout and "attempt 3: failure: KeyError" in failed.stdout
    assert "as when it died" in failed.stdout
    assert "raise KeyError" in failed.stderr, "the traceback of the handler"
    assert (shop / "ran").read_text() == repr((3, "web", "'iban'"))
    fix(shop)
    fine = replay(shop, server)
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "attempt 3: success" in fine.stdout
    assert numbers(server) == before


def test_the_debugger_stands_where_the_handler_raised(shop: Path, server: EmbeddedRedis) -> None:
    debugged = replay(shop, server, "--pdb", shown="p message.body\nq\n")
    assert debugged.returncode == 1
    assert "(Pdb) {'claim': 7}" in debugged.stdout


def test_the_written_test_fails_for_the_same_reason_and_passes_when_it_is_fixed(
    shop: Path, server: EmbeddedRedis
) -> None:
    written = replay(shop, server, "--as-test", "test_dead.py")
    assert written.returncode == 0, written.stderr
    assert not (shop / "ran").exists(), "nothing was run"
    pytest_arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_dead.py")
    failed = run(shop, *pytest_arguments)
    assert failed.returncode == 1, failed.stdout
    assert "KeyError: 'iban'" in failed.stdout
    fix(shop)
    passed = run(shop, *pytest_arguments)
    assert passed.returncode == 0, passed.stdout
    again = replay(shop, server, "--as-test", "test_dead.py")
    assert (again.returncode, "is there already" in again.stderr) == (1, True)

    with Client(server.url, namespace=NAMESPACE) as client:
        id_ = dead_id(server)
        assert client.admin.redrive("payout", ids=[id_]) == 1
        worked = run(shop, "-c", WORK)
        assert worked.returncode == 0, worked.stderr
        states = client.admin.remembered(id_).states
        assert {state.group: state.state for state in states}["payout"] == "committed"
        assert client.admin.dead_letters("payout") == []


@pytest.mark.parametrize(
    ("moment", "when"),
    [("raise OSError('away')\n    yield", "starts"), ("yield\n    1 / 0", "ends")],
)
def test_a_lifespan_that_fails_is_the_apps(
    shop: Path, server: EmbeddedRedis, moment: str, when: str
) -> None:
    life = f"""
from contextlib import asynccontextmanager

@asynccontextmanager
async def life(app):
    {moment}
"""
    text = (shop / "shop.py").read_text()
    start, end = text.index("app = App("), text.index("\n", text.index("app = App("))
    made = text[start : end - 1] + ", lifespan=life)"
    (shop / "shop.py").write_text(life + text[:start] + made + text[end:])

    stated = replay(shop, server)

    assert stated.returncode == 1
    assert f"Error: the lifespan of the app failed where it {when}" in stated.stderr
    assert "bug" not in stated.stderr


@pytest.mark.parametrize(
    ("request_parts", "shown"),
    [
        (["--pdb", "--as-test", "x.py"], "--pdb and --as-test do different things"),
        (["--app", "shop:no"], "no"),
        (["--app", "elsewhere:app"], "elsewhere"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    shop: Path, server: EmbeddedRedis, request_parts: list[str], shown: str
) -> None:
    stated = replay(shop, server, *request_parts)
    assert stated.returncode in (1, 2)
    assert shown in stated.stderr
    assert len(stated.stderr.splitlines()) == 1
