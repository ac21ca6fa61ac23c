"""What doctor makes of what a server says; the operation is driven by hand, without a server."""

import time
from typing import Any

import pytest

from rqretry.checks.acl import inner_commands
from rqretry.checks.check_result import Finding
from rqretry.checks.doctor import check, refused
from rqretry.core.errors import ScriptError, UnsafeServer
from rqretry.protocol.command import Command
from rqretry.protocol.scripts import ScriptLibrary

SOUND = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "maxmemory": str(2**30),
    "aof_enabled": "1",
    "cluster_enabled": "0",
}
LIBRARY = ScriptLibrary()


def examine(info: dict[str, str], *, ahead_ms: int = 0, denied: str = "") -> dict[str, Finding]:
    """The findings by name, of a server that answers so."""
    operation = check(LIBRARY)
    step: Any = next(operation)
    while True:
        try:
            step = operation.send(_answer(step, info, ahead_ms, denied))
        except StopIteration as end:
            return {finding.check: finding for finding in end.value}


def _answer(step: Any, info: dict[str, str], ahead_ms: int, denied: str) -> Any:
    assert isinstance(step, Command)
    if step.arguments[0] == "EVALSHA":
        return [denied] if denied in step.arguments else []
    answers = {"INFO": info, "TIME": time.time_ns() // 1_000_000 + ahead_ms}
    return answers.get(str(step.arguments[0]), b"PONG")


def test_a_sound_server_has_only_good_findings() -> None:
    assert {finding.severity for finding in examine(SOUND).values()} == {"ok"}


@pytest.mark.parametrize(
    ("change", "name", "severity", "shown"),
    [
        ({"role": "slave", "master_host": "h", "master_port": "1"}, "role", "refused", "replica"),
        ({"maxmemory_policy": "volatile-ttl"}, "eviction", "refused", "volatile-ttl"),
        ({"maxmemory_policy": ""}, "eviction", "refused", "maxmemory-policy"),
        ({"maxmemory": "0"}, "maxmemory", "warning", "not set"),
        ({"used_memory": str(2**30)}, "maxmemory", "warning", "are used: publishing is refused"),
        ({"used_memory": str(2**30 - 2**20)}, "maxmemory", "warning", "is refused at 100 %"),
        ({"used_memory": str(2**29)}, "maxmemory", "ok", "maxmemory is 1024 MiB"),
        ({"aof_enabled": "0"}, "persistence", "warning", "appendonly is off"),
        ({"cluster_enabled": "1"}, "cluster", "warning", "cluster node"),
        ({"redis_version": "6.2.14"}, "rights", "ok", "all that a worker does"),
        ({"valkey_version": "8.1.0"}, "version", "ok", "Valkey 8.1.0"),
        ({"valkey_version": "8.0.1"}, "version", "warning", "before its file is synced"),
        ({"redis_version": "7.4.2"}, "version", "warning", "Redis 7.4.2 confirms"),
        ({"redis_version": "7.4.3"}, "version", "ok", "Redis 7.4.3"),
    ],
)
def test_each_weakness_is_found_and_reported_with_its_fix(
    change: dict[str, str], name: str, severity: str, shown: str
) -> None:
    finding = examine(SOUND | change)[name]
    assert finding.severity == severity
    assert shown in finding.sentence
    assert bool(finding.fix) == (severity != "ok")


@pytest.mark.parametrize(
    ("ahead_ms", "shown"), [(5000, "5.0 s ahead of"), (-90_000, "90.0 s behind")]
)
def test_clocks_that_differ_are_a_warning(ahead_ms: int, shown: str) -> None:
    finding = examine(SOUND, ahead_ms=ahead_ms)["clock"]
    assert finding.severity == "warning"
    assert shown in finding.sentence


@pytest.mark.parametrize(
    ("denied", "shown"),
    [
        ("XADD", "this user may not run XADD:"),
        ("BZPOPMIN", "may publish, but may not run BZPOPMIN:"),
    ],
)
def test_a_right_that_is_missing_is_refused_by_name(denied: str, shown: str) -> None:
    finding = examine(SOUND, denied=denied)["rights"]
    assert finding.severity == "refused"
    assert shown in finding.sentence


def test_rights_that_cannot_be_checked_are_no_finding() -> None:
    operation = check(LIBRARY)
    step: Any = next(operation)
    while step.arguments[0] != "SCRIPT":
        step = operation.send(_answer(step, SOUND, 0, ""))
    with pytest.raises(StopIteration) as end:
        operation.throw(ScriptError("check", 0, "no flags here"))
    assert end.value.value[-1].sentence.startswith("not checked: ")


def test_a_server_that_is_too_old_is_the_only_finding() -> None:
    operation = check(LIBRARY)
    next(operation)
    with pytest.raises(StopIteration) as end:
        operation.throw(UnsafeServer("Redis at h:1 is version 5.0.3"))
    (finding,) = end.value.value
    assert (finding.check, finding.severity) == ("version", "refused")


def test_strict_refuses_warnings_too() -> None:
    findings = list(examine(SOUND | {"aof_enabled": "0"}).values())
    assert refused(findings) == []
    assert [finding.check for finding in refused(findings, strict=True)] == ["persistence"]


def test_the_commands_that_the_scripts_call_are_found() -> None:
    assert {"ZADD", "XADD", "RENAME", "LMOVE", "HINCRBY"} <= inner_commands(LIBRARY)
