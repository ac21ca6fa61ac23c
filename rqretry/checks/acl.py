"""The least rights that each role needs, generated from the scripts (docs/decisions/0029).

A user who may run a script must be allowed every command inside it, or the script fails midway;
and needs no other. So the commands come from the sources, and the role decides which scripts.
"""

import re
from collections.abc import Iterable
from hashlib import sha1
from typing import Literal, get_args

from rqretry.core.errors import ConfigError, refuse
from rqretry.core.limits import check_namespace
from rqretry.protocol.command import Operation, query, texts
from rqretry.protocol.keys import ROOT, NamespaceKeys, PartitionKeys
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.replies import block_seconds

Role = Literal["producer", "worker", "admin", "reader"]

_EVERYBODY = ("ping", "info", "time", "evalsha", "script|load", "client|setname", "select")
_WAITING = ("bzpopmin", "zadd", "client|id", "client|unblock")
_LOOKING = (
    "hget", "hgetall", "hmget", "hlen", "hexists", "hscan", "hstrlen", "hrandfield", "zscan",
    "zcard", "zscore", "zrange",
    "zrangebylex", "zlexcount", "xrange", "xrevrange", "exists", "scan",
)  # fmt: skip
_READS = frozenset(
    {"exists", "get", "hget", "hgetall", "hmget", "hlen", "hexists", "hscan", "hstrlen", "lindex",
     "llen", "lrange", "lpos", "time", "type", "xlen", "xrange", "zcard", "zcount", "zlexcount",
     "zmscore", "zrange", "zrangebylex", "zrangebyscore", "zrevrangebylex", "zscore"}
)  # fmt: skip
"""What a script without writes can reach; its includes hold more, for other scripts."""
_CATALOG = ("hget", "hgetall", "hlen")
_LARGE_BODIES = ("multi", "hsetnx", "exec")
_ON_CLUSTER = ("cluster|slots", "asking")
_CREATING = {"now", "compare_and_set", "configure", "subscribe", "audit_append"}
_DECIDING = {"prepare", "enlist", "decide", "commit", "rollback", "finish"}
_PRODUCING = (
    {"publish", "publish_with_options", "recall", "scheduled", "peek"} | _DECIDING | _CREATING
)
_ADMIN_ONLY = {
    "purge", "purge_list", "leave", "purge_blocked", "redrive", "rate_set", "scan_group",
    "dead_letter", "dead_letters", "dead_clusters", "scan_blocked", "browse", "reasons",
    "repair_places", "repair_order", "repair_owners", "repair_orphans",
}  # fmt: skip
_PRODUCER_GROUP_KEYS = ("ready", "wake", "order", "heads", "config")
_CALL = re.compile(r"\bcall\(\s*'([A-Z]+)'")
_LOOKED_UP = re.compile(r"\blooked_up\('([A-Z]+)', '([A-Z]+)'")
"""lease.lua names two commands for one of its look-ups."""
_PROBE = """
local key, denied = ARGV[1], {}
local function verdict_on(...)
  local answer = redis.pcall(...)
  local verdict = type(answer) == 'table' and answer.err or ''
  return verdict, string.find(verdict, 'ACL failure', 1, true) or string.find(verdict, 'The user')
end
local undo = {
  HSET = { 'HDEL', key, key }, LPUSH = { 'LTRIM', key, 1, 0 }, SET = { 'PEXPIRE', key, 0 },
}
undo.HSETNX, undo.RPUSH = undo.HSET, undo.LPUSH
local function may_undo(command)
  local undone = undo[command]
  return not undone or not select(2, verdict_on(unpack(undone)))
end
for at = 2, #ARGV do
  local given, verdict, refused = {}, '', false
  repeat  -- arguments are counted before rights are looked at
    verdict, refused = verdict_on(ARGV[at], unpack(given))
    given[#given + 1] = key
  until #given > 9 or not (string.find(verdict, 'rong number of arg') and may_undo(ARGV[at]))
  may_undo(ARGV[at])
  if refused then
    denied[#denied + 1] = ARGV[at]
  end
end
return denied
"""
"""Calls commands on the key ARGV[1], where there is nothing, and answers those that the user's
rights forbid, which a server looks at first. What a command leaves there is removed at once; where
the user may not, it is not called. It names no KEYS, so that any node of a cluster runs it."""
_HARMLESS = "#!lua flags=no-writes"
"""In front of it from Redis 7.0 on: then it cannot write at all."""


def rules(
    role: str, namespace: str, library: ScriptLibrary, *, user: str = "", cluster: bool = False
) -> list[str]:
    """The arguments of ACL SETUSER for a user of this role, without a password.

    Args:
        role: "producer" (publish, transactions, recall), "worker" (that, and consume, push or
            simple), "admin" (everything), or "reader" (status and messages; nothing is written).
        namespace: The only namespace that the user gets.
        library: The scripts.
        user: The user's name; default rqretry-ROLE.
        cluster: Whether the server is a node of a cluster.

    Raises:
        InvalidArgument: There is no such role, or the namespace is not valid.
    """
    if role not in get_args(Role):
        refuse("role", role, f"is not one of {', '.join(get_args(Role))}")
    check_namespace(namespace)
    commands = sorted(_commands(role, library) | set(_ON_CLUSTER if cluster else ()))
    return [
        user or f"rqretry-{role}", "on", "resetpass", "resetchannels", "resetkeys",
        *(f"~{pattern}" for pattern in _keys(role, namespace)),
        "-@all", *(f"+{command}" for command in commands),
    ]  # fmt: skip


def verbs_of(role: str, library: ScriptLibrary) -> set[str]:
    """The scripts that a role may run."""
    names = set(library.names())
    if role == "reader":
        return {name for name in names if library.get(name).read_only}
    if role == "producer":
        return names & _PRODUCING
    return names if role == "admin" else names - _ADMIN_ONLY


def denied(
    role: str,
    namespace: str,
    library: ScriptLibrary,
    *,
    cluster: bool = False,
    flags: bool = True,
) -> Operation[list[str]]:
    """The commands that a role needs and this connection's user may not run.

    A script calls them: so the answer is that which the scripts will get, and the check itself
    needs no right that the role has not. `flags`: the server knows scripts that cannot write.
    """
    key = PartitionKeys(namespace, "doctor", 0).lane("doctor")
    probe = (_HARMLESS if flags else "") + _PROBE
    sha = sha1(probe.encode(), usedforsecurity=False).hexdigest()
    commands = sorted(name.upper() for name in _commands(role, library) if "|" not in name)
    try:
        yield query(bytes, "SCRIPT", "LOAD", probe)
        missing: list[str] = yield query(texts, "EVALSHA", sha, 0, key, *commands)
    except ConfigError:
        return ["SCRIPT LOAD or EVALSHA"]
    if "BZPOPMIN" in {*commands} - {*missing} and not cluster:  # Redis 7.0 has it in no script
        try:
            yield query(bool, "BZPOPMIN", key, block_seconds(0))
        except ConfigError:
            missing.append("BZPOPMIN")
    return sorted(missing)


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


def _commands(role: str, library: ScriptLibrary) -> set[str]:
    inner = {name.lower() for name in inner_commands(library, verbs_of(role, library))}
    inner = inner & _READS if role == "reader" else inner
    plain: dict[str, Iterable[str]] = {
        "producer": (*_CATALOG, "xrange", "wait", *_LARGE_BODIES),
        "worker": (
            *_CATALOG, "hmget", "xrange", "xrevrange", "zscore", "wait", *_WAITING, *_LARGE_BODIES
        ),
        "admin": (*_LOOKING, *_WAITING, *_LARGE_BODIES, "wait", "unlink", "del", "memory|usage"),
        "reader": (*_LOOKING, "memory|usage"),
    }  # fmt: skip
    return inner | set(_EVERYBODY) | set(plain[role])


def _keys(role: str, namespace: str) -> list[str]:
    """Patterns of the keys; a producer gets nothing of a group but what it publishes into."""
    if role != "producer":
        return [f"{ROOT}:{namespace}:{{*"]
    partition = PartitionKeys(namespace, "*", 0)
    group = partition.group("*", 0)
    own = [getattr(partition, name) for name in _key_fields(partition)]
    own += [partition.lane("*")]
    own += [getattr(group, name) for name in _PRODUCER_GROUP_KEYS]
    patterns = {key.replace("{*:0}", "{*}") for key in own}
    catalog = NamespaceKeys(namespace)
    return [f"{catalog.meta.removesuffix('meta')}*", *sorted(patterns)]


def _key_fields(keys: PartitionKeys) -> list[str]:
    """The fields that are keys of the partition itself."""
    texts = {name: getattr(keys, name) for name in keys.__slots__}
    return [
        name
        for name, value in texts.items()
        if isinstance(value, str) and value.startswith(keys.base) and value != keys.base
    ]
