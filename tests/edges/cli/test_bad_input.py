"""Bad input: exit status 1 or 2 and one sentence, before anything is written."""

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import redis

from rqretry import Client
from rqretry.cli.main import cli
from rqretry.cli.options import Amount, Whole
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import Shell, dead_letter

WRONG_USAGE = [
    (["pubish", "claims"], "did you mean publish?"),
    (["topic", "lst"], "did you mean list?"),
    (["publish", "claims", "--bdy", "1"], "did you mean --body?"),
    (["worker", "m:app", "--concurency", "2"], "did you mean --concurrency?"),
    (["status", "a", "b"], "unexpected extra argument"),
    (["publish"], "Missing argument"),
    (["publish", "claims"], "nothing to publish"),
    (["publish", "claims", "--body", "1", "-"], "more than one source"),
    (["publish", "claims", "--body"], "requires an argument"),
    (["publish", "claims", "--body", "{bad"], "is not JSON"),
    (["publish", "claims", "--body", "NaN"], "NaN is not a JSON value"),
    (["publish", "claims", "--body", '{"a": 1, "a": 2}'], "names 'a' twice"),
    (["publish", "claims", "--body", str(2**70)], "64 bits"),
    (["publish", "claims", "--body", "[" * 5000 + "]" * 5000], "nested"),
    (["publish", "a b", "--body", "1"], "topic 'a b'"),
    (["publish", "a" * 128, "--body", "1"], "1 to 127 characters"),
    (["publish", "claims", "--body", "1", "--tag", "a|b"], "tag"),
    (["publish", "claims", "--body", "1", "--key", ""], "key"),
    (["publish", "claims", "--body", "1", "--header", "novalue"], "NAME=VALUE"),
    (["publish", "claims", "--body", "1", "--header", "a=1", "--header", "a=2"], "twice"),
    (["publish", "claims", "--body", "1", "--delay", "41d"], "40 d"),
    (["publish", "claims", "--body", "1", "--delay", "soon"], "not a duration"),
    (["publish", "claims", "--body", "1", "--delay", "1s", "--delay-level", "1"], "one of them"),
    (["publish", "claims", "--body", "1", "--delay-level", "0"], "--delay-level"),
    (["publish", "claims", "--body", "1", "--id", "a b"], "message id"),
    (["publish", "claims", "-", "--id", "a"], "--id names one message"),
    (["publish", "claims", "x", "--body", "1"], "--body, --file or -"),
    (["publish", "claims", "--body", "1", "--durability", ""], "durability '' must be "),
    (
        ["publish", "claims", "--body", "1", "--deliver-at", "9999-12-31T23:59:59Z"],
        "--deliver-at 9999-12-31T23:59:59+00:00 is out of range",
    ),
    (["group", "messages", "g", "--error", ""], "--error '' is empty"),
    (["group", "messages", "g", "--fingerprint", ""], "fingerprint '' is empty"),
    (["dashboard", "--allow-host", "http://X:80/"], "write 'x'"),
    (["dashboard", "--allow-host", "[::1]"], "write '::1'"),
    (["dashboard", "--allow-host", "x:80"], "write 'x'"),
    (["dashboard", "--allow-host", ""], "write one such as"),
    (["gateway", "--advertise", ""], "--advertise '' must be HOST:PORT"),
    (["receive", "claims"], "Missing option '--group'"),
    (["receive", "claims", "--group", "a/b"], "group 'a/b'"),
    (["receive", "claims", "--group", "g", "--max", "33"], "1<=x<=32"),
    (["receive", "claims", "--group", "g", "--invisible", "1ms"], "--invisible"),
    (["receive", "claims", "--group", "g", "--wait", "-1"], "--wait"),
    (["topic", "create", "x{y}"], "topic"),
    (["topic", "create", "claims", "--partitions", "0"], "from 1 to 1024"),
    (["topic", "create", "claims", "--partitions", "two"], "not a whole number"),
    (["topic", "create", "claims", "--partitions", "\u0663"], "'\\u0663' is not a whole number"),
    (["topic", "create", "claims", "--partitions", "1_0"], "not a whole number"),
    (["topic", "create", "claims", "--partitions", "9" * 5000], "not a whole number"),
    (["worker", "m:app", "--concurrency", "\u0663"], "'\\u0663' is not a whole number"),
    (["worker", "m:app", "--max-memory", "\u0665M"], "must be a size"),
    (["worker", "m:app", "--grace", "\u0663s"], "not a duration"),
    (["group", "set", "g", "--max-retries", "\u0663"], "unlimited"),
    (["group", "set", "g", "--rate-limit", "\u0663/s"], "rate"),
    (["demo", "--rows", "\u0663"], "must be a number from 1"),
    (["group", "set", "g"], "nothing to set"),
    (["group", "set", "g", "--max-retries", "many"], "unlimited"),
    (["group", "set", "g", "--max-retries", "-1"], "--max-retries -1"),
    (["group", "set", "g", "--policy", "sometimes"], "'sometimes'"),
    (["group", "set", "g", "--pinn"], "did you mean --pin?"),
    (["group", "puase", "g"], "did you mean pause?"),
    (["group", "pause"], "Missing argument 'GROUP'"),
    (["group", "promote", "g", "--level", "0"], "x>=1"),
    (["group", "promote", "g", "--level", "19"], "level 19"),
    (["group", "promote", "g", "--ids", "a b"], "message id"),
    (
        ["group", "reset", "g", "--to", "yesterday", "--yes"],
        "latest, earliest, a date or how long ago",
    ),
    (["group", "purge", "g", "--all", "--yes"], "Missing option '--state'"),
    (["group", "purge", "g", "--state", "inflight", "--all"], "'inflight' is not one of"),
    (["group", "purge", "g", "--state", "ready", "--yes"], "which ready messages? give --ids, "),
    (["group", "purge", "g", "--state", "ready", "--all"], "give --yes or --dry-run"),
    (
        ["receive", "t", "--group", "g", "--start", "now"],
        "latest, earliest, a date or how long ago",
    ),
    (["group", "reset", "g"], "give --yes or --dry-run"),
    (["group", "delete", "a/b", "--yes"], "group 'a/b'"),
    (["group", "unsubscribe", "g", "--yes"], "Missing argument 'TOPIC'"),
    (["group", "unsubscribe", "g", "a b", "--yes"], "topic 'a b'"),
    (["topic", "set", "claims"], "give --partitions, --max-messages, --max-history-bytes,"),
    (["topic", "set", "claims", "--max-messages", "-1"], "x>=0"),
    (["topic", "set", "a b", "--max-messages", "1"], "topic 'a b'"),
    (["topic", "delete", "claims"], "give --yes or --dry-run"),
    (["topic", "delete", "a b", "--yes"], "topic 'a b'"),
    (["recall", "a b"], "message id"),
    (["recall", "x", "--topic", "a b"], "topic 'a b'"),
    (["workers", "extra"], "unexpected extra argument"),
    (["inflight"], "Missing argument 'GROUP'"),
    (["audit", "--count", "0"], "1<=x<=10000"),
    (["audit", "--count", "all"], "not a whole number"),
    (["reaper", "--onse"], "did you mean --once?"),
    (["exporter", "--port", "0"], "1<=x<=65535"),
    (["exporter", "--port", "http"], "not a whole number"),
    (["exporter", "--host", ""], "--host is empty"),
    (["worker", "m:app", "--health-host", ""], "--health-host is empty"),
    (["acl", "worker", "--user", ""], "--user ''"),
    (["pipeline", "ingest", "a.csv", "t", "--master", "foo://x"], "--master 'foo://x' is no"),
    (["pipeline", "archive", "a", "--master", "local[0]"], "--master 'local[0]' is no"),
    (["acl", "worker", "--user", "a b"], "--user 'a b'"),
    (["status", "--watch", "--json"], "--watch cannot be combined"),
    (["dev"], "Missing argument 'MODULE:APP'"),
    (["dev", "app"], "write MODULE:APP"),
    (["dev", "m:app", "--url", "http://h"], "must begin with redis://"),
    (["dlq", "list", "g", "--by", "day"], "is not one of"),
    (["dlq", "redrive", "g", "--yes"], "which dead letters?"),
    (["dlq", "redrive", "g", "--all", "--rate", "fast"], "--rate 'fast'"),
    (["dlq", "redrive", "g", "--all", "--rate", "0/s"], "above 0"),
    (["dlq", "redrive", "g", "--all", "--rate", "20/day"], "20/s"),
    (["dlq", "redrive", "g", "--all", "--canary", "0"], "x>=1"),
    (["dlq", "redrive", "g", "--all", "--canary", "few"], "not a whole number"),
    (["dlq", "redrive", "g", "--all", "--canary-timeout", "1s"], "without --canary"),
    (
        ["dlq", "redrive", "g", "--all", "--canary", "1", "--canary-timeout", "soon"],
        "--canary-timeout 'soon'",
    ),
    (["dlq", "redrive", "g", "--ids", "a b"], "message id"),
    (["dlq", "purge", "g", "--all"], "--yes"),
    (["dlq", "export", "g", "--json"], "give --file"),
    (["dlq", "export", "g", "--all", "--topic", "t"], "keep one"),
    (["dlq", "export", "g", "--before", "soon"], "not a duration"),
    (["dlq", "purge", "g", "--all", "--topic", "t", "--yes"], "keep one"),
    (["dlq", "purge", "g", "--since", "yesterday", "--yes"], "not a duration"),
    (["dlq", "purge", "g", "--since", "2026-01-01T00:00:00", "--yes"], "no time zone"),
    (["message", "a b"], "message id"),
    (["--namespace", "a:b", "status"], "namespace 'a:b'"),
    (["status", "--namespace", ""], "namespace"),
    (["status", "--url", ""], "URL is empty"),
    (["status", "--url", "http://h"], "must begin with redis://"),
    (["status", "--url", "redis://h/notint"], "database 'notint'"),
    (["worker", "m:app", "--processes", "0"], "1<=x<=256"),
    (["worker", "m:app", "--redis", "embedded", "--url", "redis://h"], "keep one"),
    (["worker", "m:app", "--redis", "other"], "embedded"),
    (["worker", "app"], "write MODULE:APP"),
    (["worker", "./app:x"], "names a file, not a module"),
    (["worker", "../../etc/passwd:x"], "names a file, not a module"),
    (["worker", "C:\\x:app"], "names no variable"),
    (["worker", "mod\x1b[31m:app"], "'mod\\x1b[31m:app'"),
    (["worker", "mod;import os:app"], "no module name"),
    (["worker", "mod:app()"], "is a call"),
    (["worker", "mod:__class__"], "dunder"),
    (["worker", "mod:a.__globals__"], "dunder"),
    (["worker", ":app"], "no module name"),
    (["worker", "mod:"], "names no variable"),
]


@pytest.mark.parametrize(("request_parts", "shown"), WRONG_USAGE, ids=lambda value: str(value)[:50])
def test_wrong_usage_is_one_sentence_and_status_2(
    shell: Shell, server: EmbeddedRedis, request_parts: list[str], shown: str
) -> None:
    if "g" in request_parts and request_parts[0] in ("group", "dlq"):
        shell.ok("topic", "create", "claims")
        shell.ok("receive", "claims", "--group", "g", "--create-group", "--wait", "0")
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        before = connection.dbsize()
        assert shown in shell.fails(*request_parts, status=2)
        # A namespace may be opened to look at it; nothing else is written.
        left = {key for key in connection.keys("*") if b":{default}:" not in key}
        assert connection.dbsize() == before or not left


def test_every_number_of_every_command_is_of_the_digits_0_to_9() -> None:
    def commands(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from commands(command.get_command(context, name) or command)

    numbers = [
        parameter
        for command in commands(cli)
        for parameter in command.params
        if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
    ]
    assert len(numbers) > 10
    assert {type(parameter.type) for parameter in numbers} == {Whole, Amount}


def test_no_command_at_all_shows_the_help_and_is_wrong_usage(shell: Shell) -> None:
    result = shell()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Manage:" in result.stderr


def test_a_bad_line_is_named_before_anything_is_published(shell: Shell, client: Client) -> None:
    lines = '{"n": 1}\n\n{"n": 2}\n{bad\n{"n": 3}\n'
    line = shell.fails("publish", "claims", "-", stdin=lines, status=1)
    assert "line 4 of standard input" in line
    assert client.admin.topics() == []


def test_bytes_that_are_no_text_are_named(shell: Shell, client: Client) -> None:
    line = shell.fails("publish", "claims", "-", stdin=b"1\n\xff\xfe\n", status=1)
    assert "line 2 of standard input cannot be published: it is no JSON in UTF-8" in line
    assert "(byte 0xff at position 0); for bytes as they are give --raw" in line
    assert client.admin.topics() == []
    assert shell.ok("publish", "claims", "-", "--raw", stdin=b"\xff\xfe")
    assert shell.ok("publish", "claims", "-", stdin=b"\xef\xbb\xbf1\n")  # a mark of UTF-8 is none


def test_a_line_that_is_too_large_is_named(shell: Shell, tmp_path: Path, client: Client) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text(f'1\n"{"x" * 5_000_000}"\n')
    line = shell.fails("publish", "claims", "--file", str(file), status=1)
    assert f"line 2 of {file}" in line
    assert client.admin.topics() == []


def test_a_file_that_is_not_there_is_named(shell: Shell) -> None:
    assert "missing.jsonl" in shell.fails("publish", "t", "--file", "missing.jsonl", status=1)


def test_a_file_without_a_name_is_shown_as_such(shell: Shell) -> None:
    assert "'': No such file" in shell.fails("publish", "t", "--file", "", status=1)


def test_a_file_that_cannot_be_written_is_named(shell: Shell, client: Client) -> None:
    dead_letter(client, "t", "g", 1)
    assert "/no/such" in shell.fails("dlq", "export", "g", "--file", "/no/such/f", status=1)


def test_the_same_id_with_another_body_is_refused(shell: Shell) -> None:
    shell.ok("publish", "t", "--body", "1", "--id", "mine")
    assert "'mine'" in shell.fails("publish", "t", "--body", "2", "--id", "mine", status=2)


def test_another_number_of_partitions_is_refused(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "--partitions", "2")
    assert "exists with 2" in shell.fails("topic", "create", "t", "--partitions", "3", status=2)


def test_a_group_of_another_kind_is_refused(shell: Shell, client: Client) -> None:
    client.admin.create_topic("t")
    parts_of(client).store.perform(parts_of(client).catalog.join("g", "push", ["t"]))
    assert "push" in shell.fails("receive", "t", "--group", "g", status=1)


def test_an_unknown_dead_letter_is_named(shell: Shell, client: Client) -> None:
    dead_letter(client, "t", "g", 1)
    assert "'nope'" in shell.fails("dlq", "show", "g", "nope", status=1)


def test_an_unknown_group_hints_at_create_group(shell: Shell) -> None:
    shell.ok("topic", "create", "t")
    assert "--create-group" in shell.fails("receive", "t", "--group", "g", status=1)


@pytest.mark.parametrize(
    "request_parts",
    [
        ["status"], ["topic", "list"], ["publish", "t", "--body", "1"], ["doctor"], ["fsck"],
        ["receive", "t", "--group", "g"], ["dlq", "list", "g"], ["group", "pause", "g"],
        ["workers"], ["reaper", "--once"], ["exporter"], ["audit"], ["dashboard"],
    ],
)  # fmt: skip
def test_an_unreachable_server_is_named_within_three_seconds(request_parts: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.monotonic()
    shell = Shell(f"redis://user:hunter2@127.0.0.1:{port}/0")
    line = shell.fails(*request_parts, status=1)
    assert time.monotonic() - started < 3
    assert f"127.0.0.1:{port}" in line
    assert "hunter2" not in line


@pytest.fixture
def full_listener() -> Iterator[int]:
    """A port whose queue of connections is full: connecting to it hangs."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for each in waiting:
            each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems queue more connections")
def test_a_server_that_swallows_connections_is_given_up_within_three_seconds(
    full_listener: int,
) -> None:
    started = time.monotonic()
    line = Shell(f"redis://127.0.0.1:{full_listener}/0").fails("status", status=1)
    assert time.monotonic() - started < 3.5
    assert f"127.0.0.1:{full_listener}" in line


@pytest.mark.parametrize(
    "request_parts",
    [
        ["status", "--url", "redis://:hunter2@h:notaport"],
        ["status", "--url", "redis://user:hunter2"],
        ["status", "--url", "redis://:hun/ter2@h"],
        ["status", "--url", "ftp://:hunter2@h"],
        ["--url", "redis://:hunter2@127.0.0.1:1", "status"],
        ["redis://:hunter2@h", "status"],
        ["status", "redis://:hunter2@h"],
        ["status", "x", "redis://:hunter2@h"],
        ["doctor", "--url", "redis://:hunter2@127.0.0.1:1"],
        ["dev", "no_such_module:app", "--url", "redis://:hunter2@127.0.0.1:1"],
        ["reaper", "--once", "--url", "redis://:hunter2@127.0.0.1:1"],
        ["exporter", "--url", "redis://:hunter2@127.0.0.1:1"],
    ],
)
def test_the_password_is_never_shown(shell: Shell, request_parts: list[str]) -> None:
    result = shell(*request_parts)
    assert result.exit_code in (1, 2)
    assert "hunter2" not in result.output
    assert "hun/ter2" not in result.output


def test_the_password_is_not_in_what_doctor_prints(server: EmbeddedRedis) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        connection.execute_command("ACL", "SETUSER", "ops", "on", ">hunter2", "~*", "+@all")
        shell = Shell(f"unix://ops:hunter2@{server.socket_path}")
        text = shell.ok("doctor") + shell.ok("doctor", "--json")
        wrong = Shell(f"unix://ops:hunter3@{server.socket_path}").fails("status", status=1)
        connection.execute_command("ACL", "DELUSER", "ops")
    assert "***@" in text
    assert "hunter2" not in text
    assert "hunter3" not in wrong


@pytest.mark.parametrize("request_parts", [["status"], ["doctor"], ["worker", "shop:app"]])
def test_a_database_that_is_not_there_is_named(
    shell: Shell, server: EmbeddedRedis, tmp_path: Path, request_parts: list[str]
) -> None:
    text = "from rqretry import App\napp = App()\n@app.consumer('t', group='g')\ndef f(m): ...\n"
    (tmp_path / "shop.py").write_text(text)
    more = ["--app-dir", str(tmp_path)] if request_parts[0] == "worker" else []
    line = shell.fails(
        *request_parts, *more, "--url", f"unix://{server.socket_path}?db=99", status=1
    )
    assert "has no database of the number in the URL" in line


def test_doctor_refuses_a_user_who_may_not_run_what_the_scripts_run(
    server: EmbeddedRedis,
) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        rights = ("~*", "+@all", "-zadd")
        connection.execute_command("ACL", "SETUSER", "ops", "on", ">p", *rights)
        result = Shell(f"unix://ops:p@{server.socket_path}")("doctor")
        connection.execute_command("ACL", "DELUSER", "ops")
    assert result.exit_code == 1
    assert "this user may not run ZADD" in result.stdout


def test_doctor_refuses_a_server_that_evicts(shell: Shell, server: EmbeddedRedis) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        connection.config_set("maxmemory-policy", "allkeys-lru")
        result = shell("doctor")
    assert result.exit_code == 1
    assert "allkeys-lru" in result.stdout
