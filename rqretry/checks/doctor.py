"""Is this server safe for a queue? The checks of `rqretry doctor`, and of every worker's start.

What could lose messages is refused, what could surprise is a warning; see
docs/decisions/0029-what-a-server-must-offer.md. Nothing is changed.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from rqretry.checks.acl import denied
from rqretry.checks.check_result import Finding
from rqretry.checks.replica_checks import fencing, replicas, slots
from rqretry.core.durability import evicts, server_name, syncs_before_waitaof
from rqretry.core.errors import RqretryError, UnsafeServer
from rqretry.core.redis_url import Deployment
from rqretry.protocol.command import Argument, Command, Operation
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.connection import read_info

T = TypeVar("T")

PINGS = 20
MAX_SKEW_MS = 1000
SLOW_MS = 10.0
_FLAGS_SINCE = 7
_NEARLY_FULL = 0.9
_FREE = "let consumers drain the queue, purge dead letters, or raise maxmemory"
"""From here on a script can say that it does not write."""


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
    if fault := evicts(info):
        return Finding("eviction", "refused", f"it {fault}", "set maxmemory-policy noeviction")
    return Finding("eviction", "ok", "maxmemory-policy is noeviction")


def _memory_limit(info: Mapping[str, str]) -> Finding:
    limit, used = int(info.get("maxmemory", "0")), int(info.get("used_memory", "0"))
    if limit and used >= _NEARLY_FULL * limit:
        text = f"{used / 2**20:.1f} MiB of maxmemory, {limit / 2**20:.1f} MiB, are used"
        what = "is refused" if used >= limit else "is refused at 100 %"
        return Finding("maxmemory", "warning", f"{text}: publishing {what}", _FREE)
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
    if info.get("role") == "slave":
        return Finding("rights", "ok", "not checked: the server is a replica")
    node = info.get("cluster_enabled") == "1"
    flags = int(info.get("redis_version", "0").partition(".")[0]) >= _FLAGS_SINCE
    look = partial(denied, namespace=namespace, library=library, cluster=node, flags=flags)
    try:
        missing = yield from look("worker")
        if not missing:
            return Finding("rights", "ok", "this user may run all that a worker does")
        publishes = not (yield from look("producer"))
    except RqretryError as error:
        return Finding("rights", "ok", f"not checked: {error}")
    may = "may publish, but " if publishes else ""
    text = f"this user {may}may not run {', '.join(missing)}: a worker would stop in the middle"
    fix = f"give a worker's user what `rqretry acl worker --namespace {namespace}` prints"
    return Finding("rights", "refused", text, fix)


def _milliseconds(reply: Sequence[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000
