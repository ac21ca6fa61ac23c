"""Is this server safe for a queue? The checks of `rqretry doctor`, and of every worker's start.

What could lose messages is refused, what could surprise is a warning; see
docs/decisions/0029-what-a-server-must-offer.md. Everything is read; nothing is written.
"""

import re
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rqretry.checks.check_result import Finding
from rqretry.checks.replica_checks import fencing, replicas, slots
from rqretry.core.durability import server_name, syncs_before_waitaof
from rqretry.core.errors import RqretryError, UnsafeServer
from rqretry.core.redis_url import Deployment
from rqretry.protocol.command import Argument, Command, Operation
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import read_info

T = TypeVar("T")

PINGS = 20
MAX_SKEW_MS = 1000
SLOW_MS = 10.0
_OWN_COMMANDS = ("INFO", "TIME", "PING", "HGET", "HGETALL", "HMGET", "XRANGE", "BZPOPMIN", "SCAN")
_CALL = re.compile(r"\bcall\(\s*'([A-Z]+)'")
_LOOKED_UP = re.compile(r"\blooked_up\('([A-Z]+)', '([A-Z]+)'")
"""lease.lua names two commands for one of its look-ups."""
_DRYRUN_SINCE = 7


def check(
    library: ScriptLibrary, namespace: str = "default", deployment: Deployment = "single"
) -> Operation[list[Finding]]:
    """Check a server.

    Args:
        library: The scripts whose inner commands the user must be allowed to run.
        namespace: Whose keys the user must be allowed to touch.
        deployment: That of the URL; the server is one of its servers.

    Raises:
        StoreUnavailable: The server cannot be reached.
    """
    try:
        info = yield _plain(read_info, "INFO")
    except UnsafeServer as error:
        return [Finding("version", "refused", str(error), "upgrade the server")]
    judges = (_version, _role, _eviction, _memory_limit, _persistence)
    findings = [*(judge(info) for judge in judges), _cluster(info, deployment)]
    if deployment != "single":
        findings += [replicas(info), fencing(info)]
    if deployment == "cluster":
        findings.append(slots((yield _plain(read_info, "CLUSTER", "INFO"))))
    findings.append((yield from _clock()))
    findings.append((yield from _latency()))
    findings.append((yield from _rights(info, library, namespace)))
    return findings


def refused(findings: Sequence[Finding], *, strict: bool = False) -> list[Finding]:
    """The findings that a worker does not start with; `strict`: warnings too."""
    severities = {"refused", "warning"} if strict else {"refused"}
    return [finding for finding in findings if finding.severity in severities]


def _plain(decode: Any, *arguments: Argument) -> Command[Any]:
    return Command(str(arguments[0]).lower(), (), (), decode, arguments=arguments)


def _version(info: Mapping[str, str]) -> Finding:
    server = server_name(info)
    if syncs_before_waitaof(server):
        return Finding("version", "ok", server)
    return Finding(
        "version",
        "warning",
        f'{server} confirms durability="disk" before its file is synced',
        "upgrade to Redis 7.4.3 or Valkey 8.1, or set appendfsync always",
    )


def _role(info: Mapping[str, str]) -> Finding:
    role = info.get("role", "?")
    if role == "slave":
        primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        fix = f"use its primary at {primary}"
        return Finding("role", "refused", "the server is a replica", fix)
    return Finding("role", "ok", "the server is a primary")


def _eviction(info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy", "?")
    if policy == "noeviction":
        return Finding("eviction", "ok", "maxmemory-policy is noeviction")
    text = f"maxmemory-policy is {policy}: the server would throw messages away when it is full"
    return Finding("eviction", "refused", text, "set maxmemory-policy noeviction")


def _memory_limit(info: Mapping[str, str]) -> Finding:
    limit = int(info.get("maxmemory", "0"))
    if limit:
        return Finding("maxmemory", "ok", f"maxmemory is {limit // 2**20} MiB")
    text = "maxmemory is not set: a growing queue ends with the machine out of memory"
    fix = "set maxmemory below the memory of the machine, so that publishing is refused instead"
    return Finding("maxmemory", "warning", text, fix)


def _persistence(info: Mapping[str, str]) -> Finding:
    if info.get("aof_enabled") == "1":
        return Finding("persistence", "ok", "appendonly is on")
    text = "appendonly is off: a restart of the server loses messages"
    return Finding("persistence", "warning", text, "set appendonly yes")


def _cluster(info: Mapping[str, str], deployment: Deployment) -> Finding:
    node = info.get("cluster_enabled") == "1"
    if node == (deployment == "cluster"):
        return Finding("cluster", "ok", f"the server is {'a' if node else 'not a'} cluster node")
    if not node:
        return Finding("cluster", "refused", "the server is not a cluster node", "use redis://")
    text = "the server is a cluster node: by this URL, only what it has itself can be used"
    return Finding("cluster", "warning", text, "begin the URL with redis+cluster://")


def _clock() -> Operation[Finding]:
    sent = time.time_ns()
    server_ms: int = yield _plain(_milliseconds, "TIME")
    middle_ms = (sent + time.time_ns()) // 2 // 1_000_000
    skew_ms = server_ms - middle_ms
    if abs(skew_ms) < MAX_SKEW_MS:
        return Finding("clock", "ok", f"the clocks differ by {abs(skew_ms)} ms")
    ahead = "ahead of" if skew_ms > 0 else "behind"
    text = f"the server's clock is {abs(skew_ms) / 1000:.1f} s {ahead} this machine's"
    fix = "run an NTP client on both; due times follow the server's clock"
    return Finding("clock", "warning", text, fix)


def _latency() -> Operation[Finding]:
    times = []
    for _ in range(PINGS):
        started = time.perf_counter()
        yield _plain(bytes, "PING")
        times.append((time.perf_counter() - started) * 1000)
    median, slowest = statistics.median(times), max(times)
    sentence = f"a round trip takes {median:.2f} ms (the slowest of {PINGS}: {slowest:.2f} ms)"
    if median < SLOW_MS:
        return Finding("latency", "ok", sentence)
    return Finding("latency", "warning", sentence, "run workers nearer to the server")


def _rights(info: Mapping[str, str], library: ScriptLibrary, namespace: str) -> Operation[Finding]:
    if int(info.get("redis_version", "0").partition(".")[0]) < _DRYRUN_SINCE:
        return Finding("rights", "ok", "not checked: the server is older than 7.0")
    try:
        user = yield _plain(bytes.decode, "ACL", "WHOAMI")
        needed = sorted({*inner_commands(library), *_OWN_COMMANDS})
        described = yield _plain(list, "COMMAND", "INFO", *needed)
        calls = [_example(row, namespace) for row in described if row]
        calls.append(("EVALSHA", "0" * 40, 1, _key(namespace)))
        calls.append(("SCRIPT", "LOAD", "return 1"))
        answers = yield [_plain(_verdict, "ACL", "DRYRUN", user, *call) for call in calls]
    except RqretryError as error:
        return Finding("rights", "ok", f"not checked: {error}")
    denied = [str(call[0]) for call, answer in zip(calls, answers, strict=True) if answer]
    if not denied:
        return Finding("rights", "ok", f"user {user} may run all {len(calls)} commands")
    text = f"user {user} may not run {', '.join(denied)}: a script would stop in the middle"
    fix = f"allow them, and keys ~{_key(namespace).partition('{')[0]}*, with ACL SETUSER"
    return Finding("rights", "refused", text, fix)


def inner_commands(library: ScriptLibrary, verbs: Iterable[str] | None = None) -> set[str]:
    """The Redis commands that the scripts call; `verbs`: these scripts."""
    names = library.names() if verbs is None else verbs
    found: set[str] = set()
    for verb in names:
        source = library.get(verb).source
        found.update(_CALL.findall(source))
        for pair in _LOOKED_UP.findall(source):
            found.update(pair)
    return found


def _example(described: Sequence[Any], namespace: str) -> tuple[Argument, ...]:
    """A call of a command with its fewest arguments, on a key of ours."""
    name, arity, _, first_key = described[:4]
    arguments: list[Argument] = [name, *(["1"] * (abs(arity) - 1))]
    if first_key > 0:
        arguments[first_key] = _key(namespace)
    return (name.decode().upper(), *arguments[1:])


def _key(namespace: str) -> str:
    return f"rqretry:{namespace}:{{doctor:0}}:check"


def _verdict(reply: bytes) -> str:
    """The objection of ACL DRYRUN to a call; "" for none."""
    return "" if reply == b"OK" else reply.decode(errors="replace")


def _milliseconds(reply: Sequence[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000
