"""The commands that run on: reaper, exporter, dev and status --watch."""

import json
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from rqretry import Client, OutgoingMessage
from rqretry.admin.views import GroupStats, Stats, TopicStats
from rqretry.cli.metrics import render
from rqretry.cli.output import print_page
from rqretry.cli.status import rates
from rqretry.cli.status_watch import details
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.maintenance.upkeep import Upkeep
from rqretry.protocol.lease import Failure, fail, lease
from rqretry.protocol.maintain import register
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.conftest import Program
from tests.edges.cli.shell import Shell, dead_letter
from tests.support.servers import free_port

SHOP = """
from rqretry import App, Message

app = App()


@app.consumer("claims", group="claims", max_retries=0)
async def settle(message: Message[int]) -> None:
    {body}
"""


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


# -- reaper ----------------------------------------------------------------------------------


def test_one_round_of_the_reaper_does_what_is_due(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    shell.ok("dlq", "redrive", "g", "--all", "--rate", "100/s")
    client.publish("claims", 3, delay=0.02)
    client.simple_consumer("claims", group="h", create_group=True)
    time.sleep(0.05)  # due, and nobody is there to move it
    answer = shell.json("reaper", "--once")
    assert answer == {"namespace": "default", "promoted": 1, "expired": 0, "delivered": 1}
    assert shell.json("reaper", "--once")["delivered"] == 0
    assert "0 promoted, 0 expired, 0 delivered" in shell.ok("reaper", "--once")


def test_the_reaper_ends_leases_that_ran_out(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims", 2)
    consumer = client.simple_consumer("claims", group="g", create_group=True, max_retries=0)
    client.publish_many("claims", [1, 2, 3])
    received = 0
    while received < 3:
        received += len(consumer.receive(32, invisible_duration=0.3, wait=1))
    time.sleep(0.4)  # the leases run out, and nobody is there to see it
    assert shell.json("reaper", "--once")["expired"] == 3
    assert len(client.admin.dead_letters("g")) == 3


def test_upkeep_that_goes_on_learns_of_new_and_deleted_topics_and_groups(
    client: Client, server: EmbeddedRedis
) -> None:
    with Client(server.url) as other:
        upkeep = Upkeep(parts_of(other).catalog, "reaper")
        assert parts_of(other).store.perform(upkeep.round()) == (0, 0, 0, None, False)
        client.admin.create_topic("claims", 2)
        client.simple_consumer("claims", group="g", create_group=True)
        parts_of(other).store.perform(upkeep.round())
        client.simple_consumer("claims", group="h", create_group=True)
        client.publish_many("claims", [OutgoingMessage(body=n, delay=0.01) for n in range(8)])
        time.sleep(0.05)  # due, and nobody is there to move it
        assert parts_of(other).store.perform(upkeep.round()).delivered == 8
        assert [group.ready for group in client.admin.stats().groups] == [8, 8]
        client.admin.delete_topic("claims", force=True)
        assert parts_of(other).store.perform(upkeep.round()) == (0, 0, 0, None, False)


def test_the_reaper_delivers_by_tag(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="all", create_group=True).receive(wait=0)
    client.simple_consumer("claims", group="red", create_group=True, tags="red").receive(wait=0)
    tags = ["red", "blue", None]
    client.publish_many("claims", [OutgoingMessage(body=t, tag=t, delay=0.01) for t in tags])
    time.sleep(0.05)  # due, and nobody is there to move it
    assert shell.json("reaper", "--once")["delivered"] == 3
    assert {group.group: group.ready for group in client.admin.stats().groups} == {
        "all": 3,
        "red": 1,
    }


def test_the_reaper_moves_more_than_a_batch(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="g", create_group=True)
    client.publish_many("claims", [OutgoingMessage(body=n, delay=0.01) for n in range(1200)])
    time.sleep(0.05)  # due, and nobody is there to move it
    assert shell.json("reaper", "--once")["delivered"] == 1200


def test_the_reaper_runs_until_a_signal_and_survives_a_restart_of_redis(
    program: Program, tmp_path: Path
) -> None:
    with EmbeddedRedis(directory=tmp_path, appendonly=True) as server:
        reaper = program("reaper", "--url", server.url)
        with Client(server.url) as client:
            dead_letter(client, "claims", "g", 1, 2, 3)
            assert client.admin.redrive("g", all=True, rate="10/s") == 3
            wait_until(lambda: moved(client) == 2)
            server.restart()
            client.admin.pause("g")
            client.publish("claims", 4, delay=0.05)
            wait_until(lambda: delivered(client) == 1)
        reaper.send_signal(signal.SIGTERM)
        out, err = reaper.communicate(timeout=30)
    assert reaper.returncode == 0, err
    assert "2 promoted, " in out
    assert "1 delivered" in out
    assert "Traceback" not in err


def moved(client: Client) -> int:
    """What the reaper has promoted; read as it is stored, since a look at the numbers promotes."""
    counters = parts_of(client).catalog.partition("claims", 0).counters
    with redis.Redis(unix_socket_path=parts_of(client).settings.url.path) as connection:
        return int(connection.hget(counters, "promote:g") or 0)


def delivered(client: Client) -> int:
    keys = parts_of(client).catalog.partition("claims", 0)
    with redis.Redis(unix_socket_path=parts_of(client).settings.url.path) as connection:
        return 1 - int(connection.zcard(keys.scheduled))


# -- exporter --------------------------------------------------------------------------------


def test_the_exporter_answers_with_the_numbers(program: Program, client: Client) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    client.publish("claims", 3)
    port = free_port()
    exporter = program("exporter", "--port", str(port))
    assert exporter.stdout is not None
    assert exporter.stdout.readline() == (
        f"metrics of namespace default at http://127.0.0.1:{port}/metrics\n"
    )
    text = scrape(port)
    of = 'namespace="default",topic="claims",group="g"'
    assert f'rqretry_messages{{{of},state="ready"}} 1' in text
    assert f'rqretry_messages{{{of},state="dead"}} 2' in text
    assert f"rqretry_due_messages{{{of}}} 1" in text
    assert f"rqretry_workers{{{of}}} 0" in text
    assert f'rqretry_verbs_total{{{of},verb="lease"}} 2' in text
    assert f'rqretry_verbs_total{{{of},verb="stale"}} 0' in text, "an alert sees the first one"
    assert "rqretry_redis_used_memory_bytes{" in text
    (age,) = re.findall(
        rf'^rqretry_oldest_age_seconds{{{of},state="ready"}} (.*)$', text, re.MULTILINE
    )
    assert 0 <= float(age) < 60
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    assert caught.value.code == 404
    caught.value.close()
    exporter.send_signal(signal.SIGTERM)
    _, err = exporter.communicate(timeout=30)
    assert exporter.returncode == 0
    assert err == ""


def test_a_scrape_while_redis_is_away_is_503_and_the_next_one_works(
    program: Program, tmp_path: Path
) -> None:
    port = free_port()
    with EmbeddedRedis(directory=tmp_path, appendonly=True) as server:
        exporter = program("exporter", "--port", str(port), "--url", server.url)
        assert exporter.stdout is not None
        exporter.stdout.readline()
        assert scrape(port) is not None
        server.kill()
        time.sleep(1.1)  # the last answer is kept for a second
        with pytest.raises(urllib.error.HTTPError) as caught:
            scrape(port)
        assert caught.value.code == 503
        caught.value.close()
        server.restart()
        assert "rqretry_redis_used_memory_bytes" in scrape(port)
        exporter.send_signal(signal.SIGINT)
        exporter.communicate(timeout=30)
    assert exporter.returncode == 0


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = shell.fails("exporter", "--port", str(port), status=1)
    assert f"--port {port} cannot be opened" in line


def test_every_metric_has_one_help_and_one_type() -> None:
    group = GroupStats("g", "push", 1, 2, 3, (), 4, None, True, 5, {"lease": 6})
    topics = tuple(TopicStats(name, 1, 7, 8, 9, (group,), bytes=10) for name in ("a", "b"))
    text = render(Stats("n", topics, 11, 0), evicts=True)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    assert {sample.partition("{")[0] for sample in samples} == set(names)
    assert 'rqretry_paused{namespace="n",topic="a",group="g"} 1' in samples
    assert text.endswith("\n")


# -- dev and watch ---------------------------------------------------------------------------


def test_dev_starts_a_redis_says_how_to_publish_and_reloads(
    program: Program, tmp_path: Path, shell: Shell
) -> None:
    code = tmp_path / "cli_dev_shop.py"
    code.write_text(SHOP.format(body="raise ValueError('first')"))
    here = ("dev", "cli_dev_shop:app", "--app-dir", str(tmp_path))
    runtime = {"XDG_RUNTIME_DIR": tempfile.mkdtemp()}
    dev = program(*here, env=runtime)
    url = announced_by(dev)
    _, err = program(*here, env=runtime).communicate(timeout=30)
    assert "another `rqretry dev` of this folder runs" in err
    assert f"--url {url.partition('?')[0]}" in err
    with Client(url) as client:
        Shell(url).ok("publish", "claims", "--body", "1", "--url", url)
        wait_until(lambda: client.admin.stats().dead == 1)
        assert client.admin.dead_letters("claims")[0].error == "ValueError: first"
        code.write_text(SHOP.format(body="raise KeyError('second')"))
        wait_until(lambda: latest(client, Shell(url)) == "KeyError: 'second'")
    dev.send_signal(signal.SIGTERM)
    _, err = dev.communicate(timeout=30)
    assert dev.returncode == 0, err
    with pytest.raises(redis.ConnectionError):
        redis.from_url(url).ping()
    again = program(*here, env=runtime)
    assert announced_by(again) == url
    again.kill()  # its server ends on its own, and gives the place free


def announced_by(dev: subprocess.Popen[str]) -> str:
    """The URL that is printed for publishing, and for a web app beside it."""
    assert dev.stdout is not None
    messages = [json.loads(dev.stdout.readline())["message"] for _ in range(2)]
    request_parts, exported = map(shlex.split, messages)
    assert request_parts[:5] == ["publish", "rqretry", "publish", "TOPIC", "--body"]
    url = request_parts[-1]
    assert exported == ["web", "app", "export", f"RQRETRY_REDIS_URL={url}"]
    return url


def latest(client: Client, shell: Shell) -> str:
    """Publish one more, and wait for how it died."""
    before = client.admin.stats().dead
    shell.ok("publish", "claims", "--body", "2")
    wait_until(lambda: client.admin.stats().dead > before)
    return client.admin.dead_letters("claims")[-1].error


def test_dev_with_a_url_uses_that_server(
    program: Program, tmp_path: Path, server: EmbeddedRedis, client: Client
) -> None:
    (tmp_path / "cli_dev_url.py").write_text(SHOP.format(body="pass"))
    dev = program("dev", "cli_dev_url:app", "--app-dir", str(tmp_path), "--url", server.url)
    wait_until(lambda: any(group.workers for group in client.admin.stats().groups))
    dev.send_signal(signal.SIGINT)
    dev.communicate(timeout=30)
    assert dev.returncode == 0


def test_rates_are_what_was_counted_between_two_looks() -> None:
    def stats(succeed: int) -> Stats:
        counters = {"succeed": succeed}
        group = GroupStats("g", "push", 0, 0, 0, (), 0, None, False, 1, counters)
        return Stats("n", (TopicStats("t", 1, 0, 0, 0, (group,)),))

    (line,) = rates(stats(10), stats(30), 2.0)
    assert line.startswith("group g of t: ")
    assert "succeed 10.0/s" in line


def test_status_watch_goes_on_until_it_is_stopped(program: Program, client: Client) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="g", create_group=True)
    watch = program("status", "--watch")
    assert watch.stdout is not None
    lines = iter(watch.stdout.readline, "")
    assert next(line for line in lines if "succeed 0.0/s" in line)
    watch.send_signal(signal.SIGINT)
    stated, err = watch.communicate(timeout=30)
    assert watch.returncode == 0, err
    assert "\x1b" not in stated, "it is not a terminal: one page below the other"


def test_what_is_watched_shows_the_ladder_the_workers_and_what_died(
    shell: Shell, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    dead_letter(client, "claims", "checks", 1, 2)
    parts_of(client).store.perform(parts_of(client).catalog.join("g", "push", ["t"]))
    id_ = client.publish("t", 1)
    keys = parts_of(client).catalog.group_keys("t", 0, "g")
    leased = parts_of(client).store.run(lease(keys, worker="w", want=1, visibility_ms=60_000))
    failure = Failure(Receipt(id_, leased.numbers[0][0]), 4, "", 0.5, "failure", "{}")
    parts_of(client).store.run(fail(keys, [failure], worker="w", tracebacks={}))
    about = json.dumps({"groups": ["g"], "topics": ["t"], "pid": 7})
    live = register(parts_of(client).catalog.keys, worker="w1", about=about, ttl_ms=60_000)
    parts_of(client).store.run(live)
    print_page(details(client, client.admin.stats()))
    ladder, workers, dead = capsys.readouterr().out.strip().split("\n\n")
    assert ladder.splitlines()[1].split()[:4] == ["t", "g", "4", "1"]
    assert ", in " in ladder
    assert workers.splitlines()[1].split()[:3] == ["w1", "g", "7"]
    assert dead.splitlines()[1].split()[0] == "checks" and dead.splitlines()[1].split()[2] == "2"
