"""Random runs on a real server: with the scripts as they are they pass, with broken ones they fail.

The broken ones are bugs that other systems have had.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from rqretry.protocol.scripts import ScriptLibrary, script_directory
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.lua.conftest import virtual_time
from tests.model.checker.aof import Block, read_blocks
from tests.model.checker.check import check
from tests.model.checker.journal import follow
from tests.model.checker.report import Report, Verdict
from tests.model.checker.stories import Story
from tests.support.backends import server_backend
from tests.support.lua_hooks import VIRTUAL
from tests.support.world import World


class Bug(NamedTuple):
    """A piece of a script, replaced by a wrong one."""

    path: str
    find: str
    put: str
    broken: str
    """An invariant that must tell."""
    also: str = ""
    """A piece that is left out, too."""


BUGS = {
    "a worker that lost its lease may still commit": Bug(
        "include/fence.lua", " and lease_no == read_entry(entry, keys.floor)", "", "I6"
    ),
    "the message leaves the list before it is in flight, and the script ends there": Bug(
        "lease.lua", "call('ZADD', keys.inflight, 'NX', unpack(members))", "#o.found", "I1"
    ),
    "done deletes the lease and leaves the body": Bug(
        "include/forget.lua", "call('HDEL', keys.bodies, unpack(last)) < #last", "false", "I1c"
    ),
    "a message that kills its worker is never counted": Bug(
        "include/end_deliveries.lua", "and attempt or attempt + 1", "and attempt or attempt", "I3"
    ),
    "the scheduler dies between taking a due message and queueing it": Bug(
        "promote.lua", "filled = call('RPUSH', retry, unpack(first)) == #first or filled", "", "I1"
    ),
    "a publish whose reply was lost is stored twice": Bug(
        "include/lane.lua", "call('GET', lane)", "false", "I1b"
    ),
    "a retry comes before its time": Bug(
        "promote.lua", "upto == '' and clock.now or upto", "'+inf'", "I4"
    ),
    "a lease is taken from a worker that holds it": Bug(
        "expire.lua", "'-inf', now, 'LIMIT'", "'-inf', '+inf', 'LIMIT'", "I4"
    ),
    "a renewal that was overtaken shortens the lease": Bug(
        "renew.lua", "'XX', 'GT'", "'XX'", "I12"
    ),
    "there is one retry too many": Bug(
        "include/policy.lua", "max_retries + 1", "max_retries + 2", "I3"
    ),
    "an expired lease is handed out again under its old number": Bug(
        "include/end_deliveries.lua",
        "spell_entry(lease_no + how.numbers,",
        "spell_entry(lease_no,",
        "I3",
    ),
    "what is in flight is handed out once more": Bug(
        "lease.lua",
        "not (leased[i] or seen[id] or waits[id])",
        "not (seen[id] or waits[id])",
        "I5",
        "  call('LTRIM', first, math.min(scanned, from_first), '-1')",
    ),
    "a counter is forgotten": Bug(
        "succeed.lua", "  call('HINCRBY', counters, 'succeed:' .. group, #done)", "", "I13"
    ),
}


pytestmark = pytest.mark.parametrize("checked_server", ["redis-7"], indirect=True)


def judged(server: EmbeddedRedis, library: ScriptLibrary, seed: int) -> Report:
    backend = server_backend("redis-7", server.url, library)
    story = Story(World(backend), seed)
    story.emit()
    backend.close()
    blocks = since_flush(list(read_blocks(server.socket_path.parent)))
    return check(story.records(follow(blocks, "test")))


def since_flush(blocks: list[Block]) -> list[Block]:
    flushes = [i for i, b in enumerate(blocks) if b.commands[0][0].upper() == "FLUSHALL"]
    return blocks[flushes[-1] :]


@pytest.mark.parametrize("seed", range(5))
def test_a_random_run_passes(checked_server: EmbeddedRedis, seed: int) -> None:
    report = judged(checked_server, virtual_time(), seed)

    assert report.verdict is Verdict.PASS, report.table()
    assert report.counts["committed"] > 5
    assert report.counts["dead at the end"] > 0
    assert report.counts["expired"] > 0


@pytest.mark.parametrize("name", BUGS)
def test_a_run_with_a_known_bug_is_found(
    checked_server: EmbeddedRedis, tmp_path: Path, name: str
) -> None:
    bug = BUGS[name]
    library = ScriptLibrary(VIRTUAL, directory=broken(tmp_path, bug))

    found: set[str] = set()
    for seed in range(5):
        report = judged(checked_server, library, seed)
        found |= {finding.invariant for finding in report.findings}
        if bug.broken in found:
            break

    assert bug.broken in found


def broken(folder: Path, bug: Bug) -> Path:
    """A copy of the scripts with the bug in it."""
    source = Path(str(script_directory()))
    for path in source.rglob("*.lua"):
        target = folder / path.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        text = path.read_text(encoding="utf-8")
        if path == source / bug.path:
            assert text.count(bug.find) == 1, bug.find
            assert not bug.also or text.count(bug.also) == 1, bug.also
            text = text.replace(bug.find, bug.put).replace(bug.also, "")
        target.write_text(text, encoding="utf-8")
    return folder
