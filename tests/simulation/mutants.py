"""Bugs on purpose: the simulation is worth something if it finds each of them.

Those of the scripts replace one piece of text; those of Python replace one function for a while.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rqretry.batch import Batch
from rqretry.scripts import ScriptLibrary, script_directory
from tests.simulation.server import virtual_scripts


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: What is wrong.
        file: The script; "" for a bug in Python.
        old: The text that is replaced, once; or the attribute, as module:Class.name.
        new: What replaces it: text, or what the attribute is then.
        seed: One that finds it.
    """

    name: str
    file: str
    old: str
    new: Any
    seed: int = 1


LUA = (
    Mutant(
        "any receipt settles",
        "include/fence.lua",
        "lease_no == read_entry(entries[i])",
        "true",
        seed=9,
    ),
    Mutant(
        "an acknowledgement may come late",
        "succeed.lua",
        "strict and tonumber",
        "false and tonumber",
        seed=9,
    ),
    Mutant(
        "expiry keeps the lease number",
        "expire.lua",
        "spell_entry(lease_no + 1, next",
        "spell_entry(lease_no, next",
    ),
    Mutant(
        "failure keeps the lease number",
        "fail.lua",
        "spell_entry(lease_no + 1, dead",
        "spell_entry(lease_no, dead",
        seed=8,
    ),
    Mutant(
        "redrive keeps the lease number",
        "redrive.lua",
        "spell_entry(lease_no + 1, 1",
        "spell_entry(lease_no, 1",
        seed=22,
    ),
    Mutant(
        "a changed lease keeps its number",
        "change.lua",
        "duration_ms > 0 and lease_no + 1",
        "duration_ms > 0 and lease_no",
        seed=22,
    ),
    Mutant(
        "publish has no memory of its lanes",
        "publish.lua",
        "if last then",
        "if false then",
    ),
    Mutant(
        "publish by any route",
        "publish.lua",
        "if (current[1] or '0') ~= route_version then",
        "if false then",
        seed=2,
    ),
    Mutant(
        "delivered messages stay scheduled",
        "deliver.lua",
        "call('ZREM', scheduled, unpack(members))",
        "call('EXISTS', scheduled)",
    ),
    Mutant(
        "promoted messages stay at their level",
        "promote.lua",
        "call('ZREM', level, unpack(members))",
        "call('EXISTS', level)",
        seed=8,
    ),
    Mutant(
        "one delivery too many",
        "include/wait_or_bury.lua",
        "attempt >= policy.max_attempts",
        "attempt > policy.max_attempts",
        seed=10,
    ),
    Mutant(
        "a body is deleted while it is owed",
        "include/forget.lua",
        "if rest == '' then",
        "if true then",
        seed=2,
    ),
    Mutant(
        "the next in line stays where it is",
        "include/lines.lua",
        "if #out > 0 and call('RPUSH', o.ready, unpack(out)) == #out then",
        "if false then",
        seed=4,
    ),
    Mutant(
        "two of a message group are out",
        "include/lines.lua",
        "if not (name and head_of[name]) then",
        "if true then",
        seed=4,
    ),
    Mutant(
        "max_inflight is passed over",
        "lease.lua",
        "want = math.min(want, most - held)",
        "want = want",
        seed=8,
    ),
    Mutant(
        "a half may come after the decision",
        "prepare.lua",
        "if call('ZSCORE', closed, transaction) then",
        "if false then",
    ),
    Mutant(
        "the other decision may follow",
        "decide.lua",
        "elseif not undecided(record) then",
        "elseif false then",
        seed=48,
    ),
    Mutant(
        "the index of levels is raised",
        "include/wait_or_bury.lua",
        "call('ZADD', keys.due, 'LT',",
        "call('ZADD', keys.due,",
        seed=10,
    ),
)


def _certain(self: Batch, place: int, error: Any) -> None:
    """What may have happened passes for what certainly has not."""
    self._again[place] = error


PYTHON = (
    Mutant("a lost reply passes for a refusal", "", "rqretry.batch:Batch._put_off", _certain),
    Mutant(
        "a publish is not repeated as it was",
        "",
        "rqretry.publishing:Publishing._repeated",
        lambda self, messages: None,
    ),
)

MUTANTS = (*LUA, *PYTHON)


@contextmanager
def applied(mutant: Mutant, folder: Path) -> Iterator[ScriptLibrary]:
    """The scripts with the bug; a bug of Python is there as long as the context is."""
    if mutant.file:
        yield virtual_scripts(ScriptLibrary(directory=_broken(mutant, folder)))
        return
    place, _, name = mutant.old.partition(":")
    owner, _, attribute = name.partition(".")
    with ExitStack() as stack:
        target: Callable[..., Any] = getattr(__import__(place, fromlist=[owner]), owner)
        stack.enter_context(mock.patch.object(target, attribute, mutant.new))
        yield virtual_scripts()


def _broken(mutant: Mutant, folder: Path) -> Path:
    scripts = folder / "lua"
    shutil.copytree(str(script_directory()), scripts)
    path = scripts / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has not one {mutant.old!r}"
    path.write_text(text.replace(mutant.old, mutant.new))
    return scripts
