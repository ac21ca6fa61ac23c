"""The official clients of Node.js, Go and Java, unchanged: all of them at once, one test each.

Each runs the same programme of sends and receives in its own language, against topics and groups
of its own, and prints what it saw.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rqretry import Client, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.gateway.certificate import self_signed
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import missing
from tests.edges.gateway.clients.toolchain import LANGUAGES, NODE, NotHereError

_WAIT_S = 90
_COUNTS = {"billing": 3, "ledger": 4, "late": 1, "paid": 2, "changing": 1}
"""What each group has settled in the end."""
_TOPICS = {"billing": "orders", "ledger": "entries", "late": "later", "paid": "payments",
           "changing": "plain"}  # fmt: skip

pytestmark = pytest.mark.timeout(900)  # a new machine fetches and compiles the clients


class Program:
    """A client program that is running, and the lines that it has printed."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self._readers = [
            threading.Thread(target=lambda: self.lines.extend(self.process.stdout or [])),
            threading.Thread(target=lambda: self.errors.extend(self.process.stderr or [])),
        ]
        for reader in self._readers:
            reader.start()

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something that the program brings about."""
        end = time.monotonic() + _WAIT_S
        while not done():
            assert self.process.poll() is None, "".join([*self.lines, *self.errors])
            assert time.monotonic() < end, "".join([*self.lines, *self.errors])
            time.sleep(0.05)

    def end(self) -> None:
        """It is not needed any more: all its messages are settled."""
        with self.process:
            self.process.kill()
            for reader in self._readers:
                reader.join()

    def events(self, kind: str, **fields: str) -> list[dict[str, Any]]:
        """What it said."""
        said = [json.loads(line) for line in self.lines]
        wanted = {"event": kind, **fields}.items()
        return [event for event in said if wanted <= event.items()]


Start = Callable[..., str]


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    """The commands of each language's two programs, or why there are none."""

    def prepared(name: str) -> Any:
        try:
            language = LANGUAGES[name]
            return [language.command(one) for one in (language.program, language.example)]
        except NotHereError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        return dict(zip(LANGUAGES, pool.map(prepared, LANGUAGES), strict=True))


@pytest.fixture(scope="module")
def programs(
    commands: dict[str, Any],
    redis_server: EmbeddedRedis,
    start_gateway: Start,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Program]]:
    """All of them, started together."""
    home = tmp_path_factory.mktemp("clients")
    certificate = home / "gateway.pem"
    certificate.write_bytes(self_signed("127.0.0.1"))
    address = start_gateway("--tls-cert", str(certificate))
    environment = {**os.environ, "HOME": str(home), "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"}
    encrypted = {**environment, "TLS": "yes", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate)}
    running: dict[str, Program] = {}
    for name, found in commands.items():
        if isinstance(found, str):
            continue
        with Client(redis_server.url) as client:
            make_groups(client, name)
        running[name] = Program([*found[0], address, f"{name}-"], encrypted)
        own = start_gateway("--auto-create", namespace=name)
        with Client(redis_server.url, namespace=name) as client:
            client.admin.create_topic("orders")
            policy = RetryPolicy.ladder("1s")
            join(client, "billing", "push", "orders", policy=policy)
        running[f"{name} example"] = Program([*found[1], own], environment)
    yield running
    for program in running.values():
        program.end()


def join(client: Client, group: str, kind: str, topic: str, **settings: Any) -> None:
    parts_of(client).store.perform(parts_of(client).catalog.join(group, kind, [topic], **settings))


def make_groups(client: Client, name: str) -> None:
    settings: dict[str, dict[str, Any]] = {
        "billing": {"policy": RetryPolicy.ladder(["1s", "2s"]), "max_retries": 2},
        "ledger": {"ordered": True, "policy": RetryPolicy.fixed(0.05), "max_retries": 3},
    }
    for group, topic in _TOPICS.items():
        client.admin.create_topic(f"{name}-{topic}")
        kind = "push" if group in settings else "simple"
        join(client, f"{name}-{group}", kind, f"{name}-{topic}", **settings.get(group, {}))


@pytest.fixture(params=list(LANGUAGES))
def language(request: pytest.FixtureRequest, commands: dict[str, Any]) -> str:
    """One that runs here; in CI Node.js must."""
    name = str(request.param)
    if isinstance(commands[name], str):
        if name == NODE.name:
            missing(commands[name])
        pytest.skip(commands[name])
    return name


@pytest.fixture
def program(language: str, programs: dict[str, Program], client: Client) -> Program:
    """The program of a language, when all its messages are settled."""
    running = programs[language]
    wanted = {f"{language}-{group}": count for group, count in _COUNTS.items()}
    running.until(lambda: settled(client, language) == wanted)
    return running


def settled(client: Client, name: str) -> dict[str, int]:
    """How many messages each group has committed or buried."""
    stats = [client.admin.stats(f"{name}-{topic}") for topic in _TOPICS.values()]
    return {
        group.group: group.counters.get("succeed", 0) + group.dead
        for topic in stats
        for group in topic.groups
    }


def seen(program: Program, by: str) -> list[tuple[str, int]]:
    return [(event["body"], event["attempt"]) for event in program.events("seen", by=by)]


def sent(program: Program, body: str) -> str:
    (event,) = program.events("sent", body=body)
    return str(event["id"])


def test_a_push_consumer_retries_by_the_groups_policy_until_a_message_is_dead(
    program: Program, language: str, client: Client
) -> None:
    group, attempts = f"{language}-billing", seen(program, "billing")
    assert sorted(attempts) == [
        ("bad", 1), ("bad", 2), ("bad", 3), ("flaky", 1), ("flaky", 2), ("good", 1),
    ]  # fmt: skip
    (good,) = program.events("seen", by="billing", body="good")
    assert (good["id"], good["tag"]) == (sent(program, "good"), "book")
    assert (sorted(good["keys"]), good["properties"]) == (["k1", "k2"], {"colour": "red"})
    (dead,) = client.admin.dead_letters(group)
    assert (dead.id, dead.cause, dead.attempt) == (sent(program, "bad"), "failure", 3)
    assert all("reported a failure" in error.message for error in dead.errors)
    events = [event for event in client.admin.timeline(dead.id) if event.group == group]
    assert [event.event for event in events] == [
        "lease", "fail", "promote", "lease", "fail", "promote", "lease", "fail",
    ]  # fmt: skip
    waits = [
        event.due_ms - event.at_ms for event in events if event.event == "fail" and event.due_ms
    ]
    assert [round(wait / 1000, 1) for wait in waits] == [1.0, 2.0]


def test_an_ordered_group_keeps_its_order_through_failures(
    program: Program, language: str, client: Client
) -> None:
    entries = seen(program, "ledger")
    assert [entry for entry in entries if entry[0] != "other"] == [
        ("1", 1), ("1", 2), ("1", 3), ("2", 1), ("2", 2), ("2", 3), ("2", 4), ("3", 1),
    ]  # fmt: skip
    assert entries.index(("other", 1)) < entries.index(("3", 1))
    (dead,) = client.admin.dead_letters(f"{language}-ledger")
    assert (dead.id, dead.attempt) == (sent(program, "2"), 4)


def test_a_simple_consumer_changes_the_invisible_duration_and_acknowledges(
    program: Program,
) -> None:
    first, second = program.events("seen", by="changing")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["id"] == second["id"] == sent(program, "changed")
    assert second["at"] - first["at"] >= 0.9


def test_delayed_messages_come_at_their_time_and_can_be_recalled(program: Program) -> None:
    (soon,) = program.events("seen", by="late")
    (published,) = program.events("sent", body="soon")
    assert (soon["body"], soon["id"]) == ("soon", published["id"])
    assert published["at"] - 1 < soon["due"] <= soon["at"]
    (recalled,) = program.events("recalled")
    assert recalled["id"] == sent(program, "never")


def test_transactions_are_decided_by_their_producer(program: Program) -> None:
    assert seen(program, "paid") == [("committed", 1), ("left", 1)]
    checked = program.events("checked")
    assert {(event["body"], event["id"]) for event in checked} == {("left", sent(program, "left"))}


def test_the_program_of_the_documentation_runs(
    language: str, programs: dict[str, Program], redis_server: EmbeddedRedis
) -> None:
    running = programs[f"{language} example"]
    with Client(redis_server.url, namespace=language) as client:

        def committed() -> bool:
            (group,) = client.admin.stats("orders").groups
            return group.counters.get("succeed", 0) == 1

        running.until(committed)
    sent, *attempts = sorted(running.lines, reverse=True)
    assert sent.startswith("sent 01")
    assert attempts == ['attempt 2: {"order": 1}\n', 'attempt 1: {"order": 1}\n']
