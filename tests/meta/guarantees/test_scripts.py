"""Design rules that can be read in the text of the scripts, of every one of them."""

import re

import pytest

from rqretry.protocol.keys import partition_keys
from rqretry.protocol.scripts import Script, ScriptLibrary
from rqretry.transport.node import GROWING

LIBRARY = ScriptLibrary()
NAMES = LIBRARY.names()
ORDER_DOES_NOT_MATTER = {
    ("lua/include/message_group_order.lua", "HGETALL"),  # which message group a lost message heads
    ("lua/backfill_check.lua", "HSCAN"),  # pages, up to the last
    ("lua/sweep.lua", "HSCAN"),  # bodies that are no message's, of which all go
    ("lua/leave.lua", "HKEYS"),  # counters of the group, to be deleted
    ("lua/stats.lua", "HGETALL"),  # counters, by name
}
COMMENT = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)


def code(script: Script) -> str:
    """A script with its includes, without comments."""
    return COMMENT.sub("", script.source)


def commands(script: Script) -> set[str]:
    """The Redis commands it names."""
    return set(re.findall(r"'([A-Z]{3,})'", code(script)))


def test_only_scripts_that_take_new_work_are_refused_by_a_full_server() -> None:
    refused = {
        name for name in NAMES if not (LIBRARY.get(name).allow_oom or LIBRARY.get(name).read_only)
    }
    assert refused == set(GROWING)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_raises_no_error_and_answers_no_status_of_its_own(name: str) -> None:
    forbidden = r"\berror\s*\(|error_reply|status_reply|\bpcall\b|loadstring|setfenv|\brequire\b"
    undoing = ("undo", "fan_out_or_undo", "incoming")  # they raise it again
    raise_it_again = [f"lua/include/{name}.lua" for name in undoing]
    lines = [line.text for line in LIBRARY.get(name).lines if line.origin not in raise_it_again]
    assert not re.search(forbidden, COMMENT.sub("", "\n".join(lines)))


@pytest.mark.parametrize("name", NAMES)
def test_a_script_reads_no_set_or_hash_in_the_server_s_own_order(name: str) -> None:
    unordered = {"SMEMBERS", "SPOP", "SRANDMEMBER", "SSCAN", "KEYS", "SCAN", "RANDOMKEY", "HKEYS",
                 "HVALS", "HGETALL", "HSCAN", "ZSCAN", "HRANDFIELD", "ZRANDMEMBER"}  # fmt: skip
    found = {
        (line.origin, word)
        for line in LIBRARY.get(name).lines
        for word in re.findall(r"'([A-Z]{4,})'", line.text)
        if word in unordered
    }
    assert found <= ORDER_DOES_NOT_MATTER


@pytest.mark.parametrize("name", NAMES)
def test_a_script_reads_the_clock_once_and_from_the_server_alone(name: str) -> None:
    text = code(LIBRARY.get(name))
    assert text.count("call('TIME')") <= 1
    assert len(re.findall(r"= read_clock\(|= wall_ms\(", text)) <= 2  # one, and the one inside it
    body = "\n".join(
        line.text for line in LIBRARY.get(name).lines if line.origin == f"lua/{name}.lua"
    )
    assert len(re.findall(r"read_clock\(", COMMENT.sub("", body))) <= 1
    assert not re.search(r"\bos\.|'TIME'", COMMENT.sub("", body))


@pytest.mark.parametrize("name", NAMES)
def test_a_script_never_waits_and_takes_nothing_off_a_list_before_it_is_leased(name: str) -> None:
    waiting = {"BLPOP", "BRPOP", "BLMOVE", "BZPOPMIN", "BZPOPMAX", "BRPOPLPUSH", "BLMPOP", "WAIT"}
    popping = {"LPOP", "RPOP", "LMPOP", "RPOPLPUSH", "ZPOPMIN", "ZPOPMAX", "ZMPOP", "SPOP"}
    assert commands(LIBRARY.get(name)) & (waiting | popping) == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_script_computes_no_key_from_what_it_reads(name: str) -> None:
    # Everything that it touches stands in KEYS; `hash tag` characters in its text would build one.
    assert not re.search(r"'[^'\n]*rqretry:|\{' ?\.\.|\.\. ?'\}", code(LIBRARY.get(name)))


def test_every_key_of_a_partition_carries_one_hash_tag() -> None:
    keys = partition_keys("shop", "orders", 3)
    group = keys.group("billing", 18)
    names = (
        "config", "ready", "retry", "inflight", "attempts", "failures", "tracebacks", "dead",
        "deaths", "due", "wake", "order", "heads",
    )  # fmt: skip
    spelled = [*keys.everything(), keys.lane("p"), *group.levels]
    spelled += [getattr(group, name) for name in names]
    assert len(spelled) > 40
    assert {re.findall(r"\{.*?\}", key)[0] for key in spelled} == {"{orders:3}"}
    assert len(set(spelled)) == len(spelled)
