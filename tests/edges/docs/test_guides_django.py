"""docs/guides/django.md: the project is tested, served and worked for; what the helpers do."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from rqretry import App, BodyMismatch, CodecError, InvalidArgument, Message
from rqretry.contrib.django import publish_on_commit
from rqretry.contrib.django.management.commands.rqretry_worker import Command
from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.docs.examples import EXAMPLES, environment, running, until

PLACE = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
from django.test import Client
client = Client()
print([client.put("/orders/{key}?item=tea").status_code for _ in range(2)])
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedRedis() as server:
        yield server.url


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "django_shop", tmp_path / "shop")
    return tmp_path / "shop"


def output(*command: str, folder: Path, url: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment(url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_tests_of_the_project_pass(project: Path, url: str) -> None:
    assert "Ran 2 tests" in output("manage.py", "test", folder=project, url=url)


def test_what_the_web_process_publishes_the_worker_of_manage_py_handles(
    project: Path, url: str
) -> None:
    key = uuid4()
    shown = output("-c", PLACE.replace("{key}", str(key)), folder=project, url=url)
    assert "[202, 202]" in shown  # the second publishes nothing
    database = sqlite3.connect(project / "shop.sqlite3")
    log = project / "worker.log"
    command = ("manage.py", "rqretry_worker", "--grace", "1s")
    with running(*command, folder=project, env=environment(url), log=log):
        query = "SELECT shipped FROM shop_order WHERE key = ?"
        until(lambda: database.execute(query, (key.hex,)).fetchall() == [(1,)], log.read_text)
    database.close()
    assert "ship: group shipping, topic orders" in log.read_text()


# -- the helpers, in this process ------------------------------------------------------------------


@dataclass
class Paid:
    order: int


app = App()
orders = app.topic("paid", body=Paid)
notes = app.topic("notes")


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Settings for this process, on a file: SQLite keeps a connection to a database in memory."""
    name = tmp_path_factory.mktemp("django") / "test.sqlite3"
    engine = "django.db.backends.sqlite3"
    databases = {"default": {"ENGINE": engine, "NAME": str(name)}}
    settings.configure(DATABASES=databases, LOGGING_CONFIG=None, USE_TZ=True)
    django.setup()


@pytest.fixture
def bound(configured: None, lab: Lab) -> Iterator[Lab]:
    lab.app(app)
    yield lab
    connection.close()


def ready(lab: Lab, topic: str = "paid") -> int:
    known = {info.name for info in lab.admin.topics()}
    return lab.admin.stats(topic).backlog if topic in known else 0


def test_a_message_is_published_at_the_commit_as_it_was_then(bound: Lab) -> None:
    body = {"order": 7}
    with transaction.atomic():
        publish_on_commit(notes, body)
        body["order"] = 8
        assert ready(bound, "notes") == 0
    consumer = bound.client.simple_consumer("notes", group="g", create_group=True)
    assert [message.body for message in consumer.receive(wait=0)] == [{"order": 7}]


def test_nothing_is_published_after_a_rollback(bound: Lab) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        publish_on_commit(orders, Paid(7))
        raise DatabaseError
    assert ready(bound) == 0
    publish_on_commit(orders, Paid(7))  # no transaction
    assert ready(bound) == 1


@pytest.mark.parametrize(
    ("body", "options", "error"),
    [
        ({"order": "seven"}, {}, BodyMismatch),
        (Paid(7), {"id": "no blanks"}, InvalidArgument),
        (Paid(7), {"dealy": "10s"}, InvalidArgument),
        (object(), {}, CodecError),
    ],
)
def test_what_cannot_be_published_rolls_the_transaction_back(
    bound: Lab, body: Any, options: Any, error: type[Exception]
) -> None:
    with pytest.raises(error), transaction.atomic():
        publish_on_commit(orders, body, **options)
    assert not connection.run_on_commit
    assert ready(bound) == 0


served = App()
seen: list[bool] = []


def look() -> None:
    connection.ensure_connection()
    seen.append(connection.connection is not None)


@served.consumer("a", group="a")
def plain(message: Message[int]) -> None:
    look()


@served.consumer("b", group="b")
async def asynchronous(message: Message[int]) -> None:
    await sync_to_async(look)()


@served.consumer("c", group="c", process=True)
def apart(message: Message[int]) -> None: ...


def refusal() -> str:
    """What the command says as it ends."""
    errors = StringIO()
    with pytest.raises(SystemExit) as ended:
        Command(stderr=errors, no_color=True).run_from_argv(["manage.py", "rqretry_worker"])
    assert ended.value.code == 1
    return errors.getvalue()


def test_a_handler_leaves_no_connection_behind(bound: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = types.ModuleType("shop_with_handlers")
    monkeypatch.setitem(vars(shop), "app", served)
    monkeypatch.setitem(sys.modules, shop.__name__, shop)
    assert refusal().startswith("CommandError: the setting RQRETRY_APP is missing: name")
    settings.RQRETRY_APP = "absent:app"
    assert refusal().startswith("ConfigError: there is no module 'absent'")
    settings.RQRETRY_APP = "shop_with_handlers:app"
    from rqretry.contrib.django import worker  # noqa: PLC0415 - it loads the app

    first, second, third = [spec.handler for spec in parts_of(worker.app).consumers]
    first(1)
    assert connection.connection is None

    async def run() -> object:
        await second(1)
        return await sync_to_async(lambda: connection.connection)()

    assert asyncio.run(run()) is None
    assert seen == [True, True]
    assert third is apart


def test_without_django_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rqretry.contrib.django")
    monkeypatch.setitem(sys.modules, "django.db", None)
    with pytest.raises(ImportError, match=r"pip install 'rqretry\[django\]'"):
        import rqretry.contrib.django  # noqa: F401, PLC0415
