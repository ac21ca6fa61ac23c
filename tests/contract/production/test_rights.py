"""Users with the least rights live their whole life, and nothing else: real ACL users."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from rqretry import App, Client, ConfigError, Message, RetryPolicy
from rqretry.checks.acl import rules
from rqretry.checks.check_result import Finding
from rqretry.checks.doctor import check
from rqretry.core.errors import InvalidArgument, RqretryError, UnsafeServer
from rqretry.core.parts import parts_of
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import Shell

NAMESPACE, SECRET = "shop", "canary-7f3a"
ROLES = ("producer", "worker", "admin", "reader")


@pytest.fixture
def url_of(server: EmbeddedRedis) -> Iterator[Callable[[str], str]]:
    """The URL of a role's user on an emptied server."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        for role in ROLES:
            request = rules(role, NAMESPACE, ScriptLibrary())
            client.execute_command("ACL", "SETUSER", *request, f">{SECRET}")
        yield lambda role: f"unix://rqretry-{role}:{SECRET}@{server.socket_path}"
        for role in ROLES:
            client.acl_deluser(f"rqretry-{role}")


def client_of(url_of: Callable[[str], str], role: str) -> Client:
    """A client as this role's user."""
    return Client(url_of(role), namespace=NAMESPACE)


def test_a_producer_lives(url_of: Callable[[str], str]) -> None:
    with client_of(url_of, "admin") as admin:
        admin.admin.create_topic("known", partitions=2)
        admin.simple_consumer("known", group="g", create_group=True)
    with client_of(url_of, "producer") as client:
        for topic in ("new.orders", "known"):
            client.publish(topic, "a", tag="x", keys="k", headers={"h": "1"}, id="mine")
            assert client.publish(topic, "a", tag="x", keys="k", headers={"h": "1"}, id="mine")
            client.publish_many(topic, range(20))
            later = client.publish(topic, "later", delay=60)
            assert client.recall(later, topic)
            with client.transaction(topic) as tx:
                tx.publish("in a transaction")
            with pytest.raises(ZeroDivisionError), client.transaction(topic) as tx:
                tx.publish("never")
                raise ZeroDivisionError
        assert client.publish("known", "b", durability="memory")


async def test_a_worker_lives(url_of: Callable[[str], str]) -> None:
    app = App(url_of("worker"), namespace=NAMESPACE)
    app.topic("t.paid", partitions=2)
    seen: list[Any] = []
    ticked: list[Message[Any]] = []

    @app.consumer("t.paid", group="g.mail", policy=RetryPolicy.ladder("10ms", max_retries=1))
    async def handle(message: Any) -> None:
        seen.append(message.attempt)
        if message.body == "bad":
            raise ValueError(message.body)

    app.cron(every="1s", name="g.tick")(ticked.append)
    worker = parts_of(app).worker(grace=1)
    task = asyncio.ensure_future(worker.run())
    await worker.started.wait()
    await app.publish("t.paid", "good")
    await app.publish("t.paid", "bad")
    async with asyncio.timeout(10):
        while len(seen) < 3 or not ticked:  # noqa: ASYNC110 - handlers of another task fill it
            await asyncio.sleep(0.01)
    worker.stop()
    await task
    await app.aclose()
    assert sorted(seen) == [1, 1, 2]


def test_a_simple_consumer_lives_as_a_worker(url_of: Callable[[str], str]) -> None:
    with client_of(url_of, "worker") as client:
        client.publish("t", "a")
        consumer = client.simple_consumer("t", group="g", create_group=True)
        (message,) = consumer.receive(wait=1)
        consumer.change_invisible_duration(message, 10)
        consumer.ack(message)
        assert consumer.receive(wait=0.05) == []


def test_a_reader_sees_everything_and_writes_nothing(
    url_of: Callable[[str], str], server: EmbeddedRedis
) -> None:
    with client_of(url_of, "worker") as client:
        dead = client.publish("t", "a")
        consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=0)
        consumer.receive(wait=1, invisible_duration=0.01)
        while not client.admin.stats("t", group="g").topics[0].groups[0].dead:
            consumer.receive(wait=0.02)
    sh = Shell(url_of("reader"))
    for request in (["status"], ["topic", "list"], ["group", "list"], ["group", "show", "g"],
                  ["dlq", "list", "g"], ["dlq", "show", "g", dead], ["message", dead],
                  ["workers"], ["inflight", "g"], ["group", "messages", "g"],
                  ["topic", "show", "t"]):  # fmt: skip
        sh.ok(*request, "--namespace", NAMESPACE)
    with client_of(url_of, "worker") as client:  # what falls due later, a reader leaves to others
        client.publish("t", "b")
        client.simple_consumer("t", group="g").receive(wait=1, invisible_duration=0.01)
    with redis.Redis(unix_socket_path=str(server.socket_path)) as direct:
        before = {key: direct.dump(key) for key in direct.scan_iter()}
        while sh.json("status", "--namespace", NAMESPACE)["topics"][0]["groups"][0]["inflight"]:
            pass
        for request in (["publish", "t", "--body", "1"], ["topic", "create", "u"],
                      ["group", "pause", "g"], ["dlq", "purge", "g", "--all", "--yes"],
                      ["dlq", "redrive", "g", "--all", "--yes"]):  # fmt: skip
            shown = sh.fails(*request, "--namespace", NAMESPACE, status=1)
            assert SECRET not in shown
        assert {key: direct.dump(key) for key in direct.scan_iter()} == before


def test_an_admin_lives(url_of: Callable[[str], str]) -> None:
    with client_of(url_of, "admin") as client:
        client.admin.create_topic("t", partitions=2)
        consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=0)
        ids = client.publish_many("t", range(4))
        consumer.receive(4, wait=1, invisible_duration=0.01)
        while len(client.admin.dead_letters("g")) < 4:
            consumer.receive(wait=0.02)
        client.admin.redrive("g", ids=ids[:2])
        client.admin.purge("g", all=True)
        client.admin.set_group("g", max_retries=3)
        client.admin.pause("g")
        client.admin.resume("g")
        client.admin.unsubscribe("g", "t")
        client.admin.delete_group("g")
        client.admin.delete_topic("t")


@pytest.mark.parametrize("role", ROLES)
def test_no_role_has_another_namespace_or_a_dangerous_command(
    url_of: Callable[[str], str], role: str, server: EmbeddedRedis
) -> None:
    with (
        pytest.raises(ConfigError, match="does not let this user"),
        Client(url_of(role), namespace="other") as client,
    ):
        client.admin.topics()
    with redis.Redis(
        unix_socket_path=str(server.socket_path), username=f"rqretry-{role}", password=SECRET
    ) as direct:
        for request in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"),
                      ("EVAL", "return 1", 0), ("SCRIPT", "FLUSH"), ("ACL", "LIST"),
                      ("GET", "other"), ("PUBLISH", "c", "m"), ("SHUTDOWN",),
                      ("RESTORE", "k", 0, "x")):  # fmt: skip
            with pytest.raises(redis.ResponseError, match=r"(?i)noperm|no permissions"):
                direct.execute_command(*request)


def test_a_producer_cannot_consume_and_a_worker_cannot_erase(
    url_of: Callable[[str], str], server: EmbeddedRedis
) -> None:
    with client_of(url_of, "admin") as admin:
        admin.publish("t", "a")
        consumer = admin.simple_consumer("t", group="g", create_group=True)
        (message,) = consumer.receive(wait=1)
    with client_of(url_of, "producer") as client:
        with pytest.raises(RqretryError, match="does not let this user"):
            client.simple_consumer("t", group="g").receive(wait=0)
        with pytest.raises(RqretryError, match="does not let this user"):
            client.admin.dead_letters("g")
    with client_of(url_of, "worker") as client:
        client.simple_consumer("t", group="g").ack(message.receipt_handle)
    path = str(server.socket_path)
    with redis.Redis(unix_socket_path=path, username="rqretry-worker", password=SECRET) as direct:
        for request in (("UNLINK", "rqretry:shop:{t:0}:bodies"), ("DEL", "rqretry:shop:{t:0}:meta"),
                      ("SCAN", 0)):  # fmt: skip
            with pytest.raises(redis.ResponseError, match=r"(?i)noperm|no permissions"):
                direct.execute_command(*request)


def test_a_producer_s_user_reaches_messages_by_hand_but_no_dead_letter_or_lease(
    url_of: Callable[[str], str], server: EmbeddedRedis
) -> None:
    with client_of(url_of, "producer") as client:
        id_ = client.publish("t", "a")
    keys = PartitionKeys(NAMESPACE, "t", 0)
    group, path = keys.group("g", 18), str(server.socket_path)
    with redis.Redis(unix_socket_path=path, username="rqretry-producer", password=SECRET) as direct:
        assert direct.hdel(keys.bodies, id_) == 1, "as SECURITY.md says"
        for key in (group.dead, group.failures, group.inflight, group.attempts, group.retry):
            with pytest.raises(redis.ResponseError, match=r"(?i)noperm|no permissions"):
                direct.hdel(key, id_)


@pytest.mark.parametrize(
    ("role", "severity", "shown"),
    [
        ("admin", "ok", "all that a worker does"),
        ("worker", "ok", "all that a worker does"),
        ("producer", "refused", "may publish, but may not run BZPOPMIN, "),
        ("reader", "refused", "this user may not run BZPOPMIN, "),
    ],
)
def test_a_user_of_each_role_can_have_its_rights_checked(
    url_of: Callable[[str], str], role: str, severity: str, shown: str
) -> None:
    rights = rights_of(url_of(role))
    assert rights.severity == severity
    assert shown in rights.sentence


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        (("+@all", "~rqretry:*", "&*"), ""),
        (("+@all", "~rqretry:*", "-lmove", "-bzpopmin"), "BZPOPMIN, LMOVE"),
        (("+@all", "~rqretry:*", "-evalsha"), "SCRIPT LOAD or EVALSHA"),
    ],
)
def test_rights_are_proved_on_our_own_keys_by_the_commands_themselves(
    server: EmbeddedRedis, rules: tuple[str, ...], missing: str
) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as direct:
        direct.execute_command("ACL", "SETUSER", "broad", "reset", "on", f">{SECRET}", *rules)
        rights = rights_of(f"unix://broad:{SECRET}@{server.socket_path}")
        direct.acl_deluser("broad")
        assert direct.dbsize() == 0, "the check writes nothing"
    assert rights.severity == ("refused" if missing else "ok")
    assert missing in rights.sentence


@pytest.mark.parametrize("fault", ["LMOVE", "maxmemory-policy"])
async def test_a_program_that_embeds_a_worker_looks_at_its_server_first(
    server: EmbeddedRedis, fault: str
) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as direct:
        rules = ("+@all", "~rqretry:*", "&*", *(("-lmove",) if fault == "LMOVE" else ()))
        direct.execute_command("ACL", "SETUSER", "broad", "reset", "on", f">{SECRET}", *rules)
        if fault != "LMOVE":
            direct.config_set("maxmemory-policy", "allkeys-lru")
        app = App(f"unix://broad:{SECRET}@{server.socket_path}", namespace=NAMESPACE)
        app.consumer("t", group="g")(print)
        with pytest.raises(UnsafeServer, match=fault):
            await app.run(signals=False)
        direct.config_set("maxmemory-policy", "noeviction")
        direct.acl_deluser("broad")
        assert direct.dbsize() == 0


def rights_of(url: str) -> Finding:
    """What doctor finds about the rights of this URL's user."""
    with Client(url, namespace=NAMESPACE) as client:
        findings = parts_of(client).store.perform(check(ScriptLibrary(), NAMESPACE))
    return next(finding for finding in findings if finding.check == "rights")


def test_the_command_prints_the_rules_and_sends_nothing() -> None:
    sh = Shell("redis://127.0.0.1:1")
    text = sh.ok("acl", "worker", "--namespace", NAMESPACE, "--user", "w1")
    assert text.startswith("ACL SETUSER w1 on resetpass")
    assert "~rqretry:shop:{*" in text
    assert "cluster" not in text
    assert "+cluster|slots" in sh.ok("acl", "worker", "--cluster")
    assert "not one of" in sh.fails("acl", "boss", status=2)
    with pytest.raises(InvalidArgument):
        rules("producer", "a*b", ScriptLibrary())


@pytest.mark.parametrize("server", ["valkey-8", "redis-7"], indirect=True)  # 6.2 has no ACL DRYRUN
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_run_what_its_rules_name_and_anything_else_is_refused(
    url_of: Callable[[str], str], server: EmbeddedRedis, role: str
) -> None:
    granted = {w[1:] for w in rules(role, NAMESPACE, ScriptLibrary()) if w.startswith("+")}
    with redis.Redis(unix_socket_path=str(server.socket_path), decode_responses=True) as client:
        client.response_callbacks.pop("COMMAND", None)
        may = allowed_by(client, f"rqretry-{role}")
    assert may - {"auth", "hello", "quit", "reset"} == granted  # which need no rights


def allowed_by(client: Any, user: str) -> set[str]:
    """The commands and subcommands that the server says the user may run."""
    found = set()
    names = client.execute_command("COMMAND", "LIST")
    for row in client.execute_command("COMMAND", "INFO", *names):
        for name, arity, first_key in [(r[0], r[1], r[3]) for r in (row, *row[9])]:
            request = name.split("|")
            request += ["1"] * (max(abs(arity), first_key + 1) - len(request))
            if first_key > 0:
                request[first_key] = "rqretry:shop:{shop}:meta"
            if row[9] and "|" not in name:
                continue  # a container is as good as its subcommands
            answer = client.execute_command("ACL", "DRYRUN", user, *request)
            if "permissions to run" not in str(answer):
                found.add(name)
    return found


@pytest.mark.parametrize("command", ["zadd", "ltrim", "hset", "xadd", "hincrby", "zrem"])
def test_a_right_that_is_taken_away_while_a_worker_runs_loses_no_message(
    url_of: Callable[[str], str], server: EmbeddedRedis, command: str
) -> None:
    with client_of(url_of, "worker") as client:
        ids = set(client.publish_many("t", range(3)))
        consumer = client.simple_consumer("t", group="g", create_group=True)
        with redis.Redis(unix_socket_path=str(server.socket_path)) as admin:
            admin.execute_command("ACL", "SETUSER", "rqretry-worker", f"-{command}")
            answered: set[str] = set()
            with pytest.raises(RqretryError, match="does not let this user"):
                (message,) = consumer.receive(1, wait=0, invisible_duration=0.05)
                answered.add(message.id)
                consumer.ack(message)
            admin.execute_command("ACL", "SETUSER", "rqretry-worker", f"+{command}")
        done: set[str] = set()
        for _ in range(50):
            for message in consumer.receive(3, wait=0.1):
                consumer.ack(message)
                done.add(message.id)
            if done >= ids - answered:
                break
        assert ids - done <= answered, "what was never acknowledged is delivered"
