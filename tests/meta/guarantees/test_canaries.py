"""Secrets are planted wherever a user can put one, and searched for in all output."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rqretry import App, AsyncClient, Client, RqretryError
from rqretry.core.parts import parts_of
from rqretry.core.redis_url import RedisUrl
from tests.contract.production.conftest import ROOT, Site, durable_server, site, until
from tests.edges.cli.shell import Shell
from tests.support.servers import free_port

__all__ = ["durable_server", "site"]

PASSWORD = "canary-pass-8d1f"
ENCODED = "canary%2Dpass%2D8d1f"
BODY, HEADER, KEYED = "canary-body-51c0", "canary-header-93aa", "canary-nested-7be2"
SECRETS = (PASSWORD, ENCODED)
CONTENTS = (BODY, HEADER, KEYED)


def assert_clean(text: str, *request_parts: str) -> None:
    """None of these is in it, plain or escaped."""
    for word in request_parts:
        assert word not in text
        assert json.dumps(word)[1:-1] not in text


@pytest.fixture
def locked(site: Site) -> Iterator[str]:
    """The URL of a user with the password, which the server wants."""
    path = site.server.socket_path
    with redis.Redis(unix_socket_path=str(path)) as connection:
        request_parts = ("SETUSER", "canary", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        connection.execute_command("ACL", *request_parts)
    yield f"unix://canary:{ENCODED}@{path}"
    with redis.Redis(unix_socket_path=str(path)) as connection:
        connection.execute_command("ACL", "DELUSER", "canary")


@pytest.mark.chaos
def test_a_worker_at_its_most_talkative_shows_no_secret_and_no_content(
    site: Site, locked: str
) -> None:
    port = free_port()
    request_parts = ("--metrics-port", str(port), "--log-level", "debug")
    service = site.ready(*request_parts, RQRETRY_REDIS_URL=locked)
    for number in range(6):
        site.client.publish("many", number, headers={"h": HEADER})
    site.client.publish("odd", [BODY, {"a": {"b": KEYED}}], headers={"h": HEADER})
    site.client.publish("odd", ["die", "no such flight"], headers={"h": HEADER})
    until(lambda: site.stats("odd").dead == 1, say=service.diagnosis)
    until(lambda: site.stats("many").counters.get("succeed", 0) == 6, say=service.diagnosis)
    site.redis.script_flush()
    site.redis.client_kill_filter(_type="normal", skipme=True)
    site.client.publish("odd", [BODY])
    until(lambda: site.stats("odd").counters.get("succeed", 0) == 2, say=service.diagnosis)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        output = answer.read().decode()
    output += json.dumps([service.get("/livez"), service.get("/readyz")])
    service.stop()
    output += service.log_path.read_text()
    assert service.process.stdout is not None
    output += service.process.stdout.read()
    assert "dead letter" in output
    assert "***@" in output
    assert_clean(output, *SECRETS, *CONTENTS)
    stored = json.dumps([str(site.redis.xrange(key)) for key in site.redis.scan_iter("*:events")])
    assert_clean(stored, *SECRETS, *CONTENTS)


def test_commands_show_no_secret_and_content_only_where_it_is_asked_for(
    site: Site, locked: str
) -> None:
    with Client(locked, namespace="test") as client:
        client.admin.create_topic("t")
        consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=0)
        id_ = client.publish("t", {"secret": BODY, "a": [KEYED]}, headers={"h": HEADER})
        while not client.admin.dead_letters("g"):
            consumer.receive(1, invisible_duration=0.01, wait=0.02)
    sh = Shell(locked)
    space = ("--namespace", "test")
    quiet = [
        ["status"], ["status", "--json"], ["topic", "list"], ["topic", "show", "t"],
        ["group", "show", "g"], ["dlq", "list", "g"], ["workers"], ["inflight", "g"],
        ["dlq", "list", "g", "--by", "message", "--json"], ["audit", "--json"], ["doctor"],
        ["doctor", "--json"], ["fsck", "--json"],
    ]  # fmt: skip
    for request_parts in quiet:
        assert_clean(sh.ok(*request_parts, *space), *SECRETS, *CONTENTS)
    for request_parts in (["dlq", "show", "g", id_], ["message", id_], ["dlq", "export", "g"]):
        output = sh.ok(*request_parts, *space)
        assert BODY in output
        assert_clean(output, *SECRETS)
    wrong = Shell(locked.replace(ENCODED, "canary%2Dwrong"))
    assert_clean(wrong.fails("status", *space, status=1), "canary-wrong", "canary%2Dwrong")


def test_reprs_and_errors_show_no_secret(site: Site, locked: str) -> None:
    app = App(locked, namespace="test")
    output = [
        repr(app),
        str(parts_of(app).settings),
        repr(parts_of(app).settings.url),
        str(parts_of(app).settings.url),
    ]
    with Client(locked, namespace="test") as client:
        output += [repr(client), repr(parts_of(client).store), repr(parts_of(client).store.session)]
        client.publish("t", 1)
        output += [repr(node) for node in parts_of(client).store.topology.nodes.values()]
    for url in (
        f"redis://u:{ENCODED}@127.0.0.1:1/0",
        f"redis+sentinel://u:{ENCODED}@127.0.0.1:1/s/0?sentinel_password={ENCODED}",
        f"redis+cluster://u:{ENCODED}@127.0.0.1:1",
    ):
        with Client(url, namespace="test") as client:
            parts_of(client).store.repeat_seconds = 0.0
            with pytest.raises(RqretryError) as caught:
                client.publish("t", BODY, headers={"h": HEADER})
        chain: BaseException | None = caught.value
        while chain is not None:
            output += [str(chain), repr(chain)]
            chain = chain.__cause__ or chain.__context__
        output.append(repr(RedisUrl.parse(url)))
    asyncio.run(app.aclose())
    assert_clean("\n".join(output), *SECRETS, *CONTENTS)


def test_an_exporter_shows_no_secret_and_no_content(site: Site, locked: str) -> None:
    with Client(locked, namespace="test") as client:
        client.publish("t", BODY, headers={"h": HEADER}, tag="x", keys="k")
    port = free_port()
    request_parts = ["exporter", "--port", str(port), "--namespace", "test"]
    env = {**os.environ, "RQRETRY_REDIS_URL": locked}
    exporter = subprocess.Popen(
        [sys.executable, "-m", "rqretry", *request_parts],
        env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    found: list[str] = []

    def scraped() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                found.append(answer.read().decode())
        except OSError:
            return False
        return True

    try:
        until(scraped)
        command_line = Path(f"/proc/{exporter.pid}/cmdline").read_bytes().decode()
    finally:
        exporter.terminate()
        output, _ = exporter.communicate(timeout=15)
    assert "rqretry_" in found[0]
    assert_clean(found[0] + output + command_line, *SECRETS, *CONTENTS)


async def test_an_ambiguous_publish_names_its_id_and_not_its_content(site: Site) -> None:
    async with AsyncClient("redis://127.0.0.1:1", namespace="test") as client:
        parts_of(client).store.repeat_seconds = 0.0
        with pytest.raises(RqretryError) as caught:
            await client.publish("t", BODY, headers={"h": HEADER})
    assert_clean(str(caught.value), *CONTENTS)
