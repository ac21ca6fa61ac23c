"""Processes that are replaced: after so many messages, above a size, by SIGHUP, by new code."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rqretry.supervision.reload import CodeWatch
from tests.contract.production.conftest import ROOT, Service, Site, until

pytestmark = pytest.mark.chaos

VERSION = """
from pathlib import Path
import redis
from rqretry import App
from rqretry.core.parts import parts_of
app = App()
@app.consumer("t", group="g", max_retries={version})
def handle(message):
    url = parts_of(app).settings.url
    with redis.Redis(unix_socket_path=str(url.redis_kwargs()["path"])) as client:
        client.rpush("versions", {version})
"""


def test_a_process_that_finished_its_messages_is_replaced_and_nothing_is_lost(site: Site) -> None:
    service = site.ready("--max-messages", "20")
    (first,) = service.pids()
    site.client.publish_many("t", [0.001] * 50)
    site.committed(50)
    until(lambda: len({line["pid"] for line in site.ledger()}) >= 2)

    counts = [line["pid"] for line in site.ledger()].count(first)

    assert 20 <= counts < 20 + 2 * 4  # what ran could finish, nothing more was started
    assert {line["attempt"] for line in site.ledger()} == {1}
    assert len(site.ledger()) == 50
    service.says("it has finished 20 messages (--max-messages)")
    service.says(f"worker process {first} was replaced")
    assert "expire" not in site.stats().counters
    assert service.stop() == 0


@pytest.mark.campaign
def test_a_process_that_grew_too_big_is_replaced(site: Site) -> None:
    service = site.ready("--max-memory", "200M")
    (first,) = service.pids()
    site.client.publish("odd", ["hold", 250 * 1024 * 1024])

    until(lambda: bool(service.pids() - {first}), say=service.diagnosis)
    service.becomes(200)

    service.says("more than 200 (--max-memory)")
    assert "expire" not in site.stats("odd").counters
    assert service.stop() == 0


def test_sighup_replaces_the_processes_one_after_another(site: Site) -> None:
    service = site.ready("--processes", "2")
    before = service.pids()
    site.client.publish_many("t", [0.05] * 150)
    until(lambda: len(site.ledger()) > 8)

    service.process.send_signal(signal.SIGHUP)
    sizes = set[int]()

    def replaced() -> bool:
        now = service.pids()
        sizes.add(len(now))
        return len(now) == 2 and not now & before

    until(replaced, say=service.diagnosis)
    site.committed(150)

    assert sizes <= {1, 2}
    assert {line["attempt"] for line in site.ledger()} == {1}
    assert len(site.ledger()) == 150
    assert service.stop() == 0


def test_sighup_to_the_process_group_harms_no_worker(site: Site) -> None:
    service = site.ready()
    site.client.publish("t", 1)
    until(lambda: bool(site.ledger()))
    os.killpg(service.process.pid, signal.SIGHUP)
    site.committed(1)
    assert len(site.ledger()) == 1


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A module that writes down which version of it ran."""
    path = tmp_path / "code" / "versioned.py"
    path.parent.mkdir()
    path.write_text(VERSION.format(version=1))
    return path


def reloading(site: Site, code: Path) -> Service:
    return site.ready("--reload", app="versioned:app", folder=code.parent)


def versions(site: Site) -> Any:
    return site.redis.lrange("versions", 0, -1)


def test_a_change_of_the_code_is_loaded_also_after_a_mistake(site: Site, code: Path) -> None:
    service = reloading(site, code)
    site.client.publish("t", 1)
    until(lambda: versions(site) == [b"1"])

    code.write_text("this is no Python")
    service.says("waiting for the code to change")
    assert service.get("/livez")[0] == 200
    site.client.publish("t", 2)
    code.write_text(VERSION.format(version=2))
    until(lambda: versions(site) == [b"1", b"2"], say=service.diagnosis)
    service.says("versioned.py has changed")

    assert site.client.admin.groups()[0].max_retries == 2  # a reload is a start
    assert service.stop() == 0


BLOCKS = """
import threading
from rqretry import App
from rqretry.core.parts import parts_of
app = App()
@app.consumer("t", group="g", consume_timeout="500ms", visibility="500ms", max_retries=1)
async def handle(message):
    if message.attempt == 1:
        threading.Event().wait()
"""


def test_a_process_that_no_longer_turns_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "blocks.py").write_text(BLOCKS)
    service = site.ready("--grace", "0.1", app="blocks:app", folder=tmp_path)
    (first,) = service.pids()
    site.client.publish("t", 1)
    until(lambda: bool(service.pids()) and first not in service.pids(), say=service.diagnosis)
    service.says("its event loop is blocked; it is replaced")
    site.committed(1)
    assert service.stop() == 0


HANGS = """
import threading, os, redis
from rqretry import App
from rqretry.core.parts import parts_of
app = App()
@app.consumer("t", group="g", ordered=True, consume_timeout="500ms", visibility="1s", max_retries=0)
def handle(message):
    url = parts_of(app).settings.url
    with redis.Redis(unix_socket_path=str(url.redis_kwargs()["path"])) as client:
        client.rpush("ran", f"{message.body} {os.getpid()}")
    if message.body == "hangs":
        threading.Event().wait()
"""


def test_a_thread_that_holds_a_message_group_for_too_long_is_ended_with_its_process(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    service = site.ready("--grace", "0.1", app="hangs:app", folder=tmp_path)
    (first,) = service.pids()
    for body in ("hangs", "next"):
        site.client.publish("t", body, message_group="x")
    site.committed(1)
    service.says("handlers of a consumer that timed out do not end")
    service.says(f"worker process {first} was replaced")
    (second,) = service.pids()
    ran = site.redis.lrange("ran", 0, -1)
    assert ran == [f"hangs {first}".encode(), f"next {second}".encode()]
    assert site.stats().counters["expire"] == 1  # the lease ended when the process had
    assert service.stop() == 0


def test_only_python_files_that_are_not_hidden_are_watched(tmp_path: Path) -> None:
    watch = CodeWatch(str(tmp_path))
    names = ("a.py", "b.txt", ".git/c.py", "sub/d.py", "sub/__pycache__/e.py", "sub/.#f.py")
    assert [n for n in names if watch.is_code(None, str(tmp_path / n))] == ["a.py", "sub/d.py"]


def test_without_watchfiles_reload_names_the_extra(site: Site, code: Path) -> None:
    (code.parent / "sitecustomize.py").write_text("import sys; sys.modules['watchfiles'] = None")
    path = f"{code.parent}:{ROOT}"
    service = site.start("--reload", app="versioned:app", folder=code.parent, PYTHONPATH=path)
    assert service.process.wait(20) == 1
    service.says("pip install 'rqretry[reload]'")
