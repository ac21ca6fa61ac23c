"""`rqretry` as a program: the worker's banner and end, signals, pipes, and no colours in them."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from rqretry import App, Client, Message
from rqretry.cli.banner import print_banner
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.conftest import Program
from tests.edges.cli.shell import Shell

SHOP = """
from rqretry import App, ConsumeResult, DeadLetter

app = App()

@app.consumer("claims", group="claims", concurrency=8)
async def settle(message) -> ConsumeResult:
    if message.body == "dead":
        raise DeadLetter("no such flight")
    return ConsumeResult.SUCCESS

@app.consumer(["claims", "more"], group="counts", max_retries=2)
def count(message):
    pass
"""


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """The folder of a module `cli_shop` with two handlers."""
    (tmp_path / "cli_shop.py").write_text(SHOP)
    return str(tmp_path)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def ended(process: subprocess.Popen[str], number: int) -> tuple[str, str]:
    process.send_signal(number)
    return process.communicate(timeout=30)


def test_a_worker_says_what_it_will_do_works_and_stops(
    program: Program, client: Client, shop: str, shell: Shell
) -> None:
    worker = program("worker", "cli_shop:app", "--app-dir", shop, "--processes", "2")
    id_ = client.publish("claims", "dead")
    client.publish("claims", "fine")
    wait_until(
        lambda: client.admin.stats().dead == 1 and client.admin.stats().topics[0].stored == 1
    )
    wait_until(lambda: {g.workers for g in client.admin.stats("claims").groups} == {2})
    (message,) = shell.json("dlq", "list", "claims", "--by", "message")["messages"]
    assert message == {
        "id": id_, "topic": "claims", "attempt": 1, "cause": "rejected", "error": "no such flight",
    }  # fmt: skip
    out, err = ended(worker, signal.SIGTERM)
    assert worker.returncode == 0, err
    assert "2 processes, namespace default" in out
    assert "settle: group claims, topic claims" in out
    assert "8 at once in each process (async)" in out
    assert "16 retries = 17 deliveries over 4 h 45 m 40 s, then %DLQ%claims" in out
    assert "None means failure" in out
    assert "count: group counts, topics claims, more" in out
    assert "2 retries = 3 deliveries over 40 s, then %DLQ%counts" in out
    assert "None means success" in out
    assert "appendonly is off" in out
    lines = [json.loads(line) for line in (out + err).splitlines()]  # the banner too, as the logs
    assert {line["logger"] for line in lines} == {"rqretry"}
    levels = {line["level"] for line in lines if "appendonly is off" in line["message"]}
    assert levels == {"warning"}
    assert "Traceback" not in err
    assert "\x1b[" not in out


def test_the_banner_reports_the_retries_that_an_operator_set(
    program: Program, client: Client, shop: str
) -> None:
    parts_of(client).store.perform(parts_of(client).catalog.join("claims", "push", ["claims"]))
    client.admin.set_group("claims", max_retries=1, policy="fixed:5s", rate_limit="100/m")
    worker = program("worker", "cli_shop:app", "--app-dir", shop)
    wait_until(lambda: any(group.workers for group in client.admin.stats().groups))
    out, _ = ended(worker, signal.SIGINT)
    assert worker.returncode == 0
    assert "1 retry = 2 deliveries over 5 s, then %DLQ%claims" in out
    assert "at most 100/m, over all workers" in out


def test_the_banner_reports_what_is_pinned_whatever_the_handler_asks_for(
    program: Program, client: Client, shop: str
) -> None:
    parts_of(client).store.perform(
        parts_of(client).catalog.join("counts", "push", ["claims", "more"])
    )
    client.admin.set_group("counts", max_retries=1, max_inflight=7, pin=True)
    worker = program("worker", "cli_shop:app", "--app-dir", shop)
    wait_until(lambda: any(group.workers for group in client.admin.stats().groups))
    out, _ = ended(worker, signal.SIGINT)
    assert "1 retry = 2 deliveries over 10 s, then %DLQ%counts" in out
    assert "at most 7 in flight, over all workers" in out


def test_the_banner_reports_how_large_batches_are(capsys: pytest.CaptureFixture[str]) -> None:
    app = App()

    @app.consumer("rows", group="sink", batch=200)
    async def store(_messages: list[Message[int]]) -> None:
        """Nothing."""

    print_banner(app, [], "the default", reached=False, processes=1, concurrency=None)
    assert "4 batches of up to 200 at once in each process (async)" in capsys.readouterr().out


def test_a_worker_with_an_embedded_redis_prints_its_url(program: Program, shop: str) -> None:
    worker = program("worker", "cli_shop:app", "--app-dir", shop, "--redis", "embedded")
    assert worker.stdout is not None
    messages = [json.loads(worker.stdout.readline())["message"] for _ in range(2)]
    assert messages[1].startswith("Redis unix://")
    with Client(messages[1].split()[1].removesuffix(";")) as client:
        client.publish("claims", "dead")
        wait_until(lambda: client.admin.stats("claims").dead == 1)
    ended(worker, signal.SIGTERM)
    assert worker.returncode == 0


def test_a_worker_refuses_a_server_that_evicts(
    program: Program, server: EmbeddedRedis, shop: str
) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        connection.config_set("maxmemory-policy", "allkeys-lru")
    worker = program("worker", "cli_shop:app", "--app-dir", shop)
    out, err = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert out == ""
    assert err.startswith("Error: Redis at ")
    assert "maxmemory-policy allkeys-lru" in err
    assert len(err.splitlines()) == 1


def test_a_worker_refuses_a_replica(program: Program, server: EmbeddedRedis, shop: str) -> None:
    with (
        EmbeddedRedis() as replica,
        redis.Redis(unix_socket_path=str(replica.socket_path)) as connection,
    ):
        connection.execute_command("REPLICAOF", "127.0.0.1", "1")
        worker = program("worker", "cli_shop:app", "--app-dir", shop, "--url", replica.url)
        _, err = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert "is a replica: use its primary at 127.0.0.1:1" in err


def test_a_strict_worker_refuses_what_doctor_warns_about(program: Program, shop: str) -> None:
    worker = program("worker", "cli_shop:app", "--app-dir", shop, "--strict")
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert "appendonly is off" in err


def test_a_worker_without_a_server_says_so_and_works_when_it_comes(
    program: Program, shop: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"redis://127.0.0.1:{port}/0"
    worker = program("worker", "cli_shop:app", "--app-dir", shop, "--url", url)
    assert worker.stdout is not None
    messages = [json.loads(worker.stdout.readline())["message"] for _ in range(2)]
    not_there = f"Redis {url} (cannot be reached yet; the workers keep trying)"
    assert messages[1].startswith(f"{not_there}; named by ")
    with EmbeddedRedis(port=port), Client(url) as client:
        client.publish("claims", "dead")
        wait_until(lambda: client.admin.stats("claims").dead == 1)
        ended(worker, signal.SIGTERM)
    assert worker.returncode == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("from rqretry import App\napp = App()\n", "has no consumers"),
        ("1 / 0\n", "module broken failed on import: ZeroDivisionError"),
        ("app = 1\n", "is not an App but int"),
    ],
)
def test_a_worker_that_cannot_start_says_why_in_one_line(
    program: Program, tmp_path: Path, text: str, shown: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    worker = program("worker", "broken:app", "--app-dir", str(tmp_path))
    out, err = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert out == ""
    assert shown in err
    assert len(err.splitlines()) == 1


def test_what_is_piped_has_no_colour_and_whole_lines(program: Program, client: Client) -> None:
    name = "t" * 120
    client.admin.create_topic(name)
    client.simple_consumer(name, group="g" * 100, create_group=True)
    out, err = program("status").communicate(timeout=30)
    assert "\x1b[" not in out + err
    assert any(name in line and "g" * 100 in line for line in out.splitlines())


def test_a_reader_that_goes_away_is_no_error(program: Program, client: Client) -> None:
    lines = "".join(f"{n}\n" for n in range(20_000))
    publish = program("publish", "claims", "-", stdin=subprocess.PIPE)
    assert publish.stdout is not None
    publish.stdout.close()
    publish.stdout = None
    assert publish.stdin is not None
    publish.stdin.write(lines)
    publish.stdin.close()
    publish.stdin = None
    _, err = publish.communicate(timeout=60)
    assert err == ""
    assert client.admin.stats().backlog == 20_000


def test_ctrl_c_while_waiting_is_quiet(
    program: Program, client: Client, server: EmbeddedRedis
) -> None:
    client.admin.create_topic("claims")
    receive = program("receive", "claims", "--group", "g", "--create-group", "--wait", "60s")
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        wait_until(lambda: int(connection.info("clients")["blocked_clients"]) > 0)
    out, err = ended(receive, signal.SIGINT)
    assert receive.returncode == 1
    assert out == ""
    assert err.strip() == ""


def test_json_of_a_program_is_one_object_on_standard_output(
    program: Program, client: Client
) -> None:
    id_ = client.publish("claims", {"text": "Zürich \x1b[31m"})
    out, err = program(
        "receive", "claims", "--group", "g", "--create-group", "--json"
    ).communicate()
    assert err == ""
    assert json.loads(out)["messages"][0]["id"] == id_


def test_control_characters_of_a_body_do_not_reach_the_terminal(
    shell: Shell, client: Client
) -> None:
    client.publish("claims", "\x1b[31mred", headers={"h": "\x1b]0;title\x07"})
    out = shell.ok("receive", "claims", "--group", "g", "--create-group")
    assert "\x1b" not in out
    assert "red" in out
