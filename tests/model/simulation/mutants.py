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

from rqretry.protocol.scripts import ScriptLibrary, script_directory
from rqretry.transport.replies import Call
from tests.model.simulation.server import virtual_scripts


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: What is wrong.
        file: The script; "" for a bug in Python.
        old: The text that is replaced, once; or the attribute, as module:Class.name.
        new: What replaces it: text, or what the attribute is then.
        quick: A few seeds find it.
    """

    name: str
    file: str
    old: str
    new: Any
    quick: bool = False


LUA = (
    Mutant(
        "any receipt settles",
        "include/fence.lua",
        "lease_no == (entry and read_entry(entry) or 1)",
        "true",
    ),
    Mutant(
        "an acknowledgement may come late",
        "succeed.lua",
        "strict and tonumber",
        "false and tonumber",
    ),
    Mutant(
        "expiry keeps the lease number",
        "expire.lua",
        "spell_entry(lease_no + 1, next",
        "spell_entry(lease_no, next",
        quick=True,
    ),
    Mutant(
        "failure keeps the lease number",
        "fail.lua",
        "known.waits = spell_entry(lease_no + 1,",
        "known.waits = spell_entry(lease_no,",
    ),
    Mutant(
        "redrive keeps the lease number",
        "redrive.lua",
        "spell_entry(lease_no + 1, 1",
        "spell_entry(lease_no, 1",
    ),
    Mutant(
        "a changed lease keeps its number",
        "change_visibility.lua",
        "duration_ms > 0 and lease_no + 1",
        "duration_ms > 0 and lease_no",
    ),
    Mutant(
        "publish has no memory of its lanes",
        "publish.lua",
        "if last then",
        "if false then",
        quick=True,
    ),
    Mutant(
        "publish by any route",
        "publish.lua",
        "if (current[1] or '0') ~= route_version then",
        "if false then",
        quick=True,
    ),
    Mutant(
        "delivered messages stay scheduled",
        "deliver.lua",
        "call('ZREM', scheduled, unpack(members))",
        "call('EXISTS', scheduled)",
        quick=True,
    ),
    Mutant(
        "promoted messages stay at their level",
        "promote.lua",
        "call('ZREM', level, unpack(members))",
        "call('EXISTS', level)",
    ),
    Mutant(
        "one delivery too many",
        "include/wait_or_bury.lua",
        "attempt >= policy.max_attempts",
        "attempt > policy.max_attempts",
    ),
    Mutant(
        "a body is deleted while it is owed",
        "include/forget.lua",
        "if rest == '' then",
        "if true then",
        quick=True,
    ),
    Mutant(
        "the next in line stays where it is",
        "include/message_group_order.lua",
        "if #out > 0 and call('RPUSH', o.ready, unpack(out)) == #out then",
        "if false then",
    ),
    Mutant(
        "two of a message group are out",
        "include/message_group_order.lua",
        "if not (name and head_of[name]) then",
        "if true then",
    ),
    Mutant(
        "max_inflight is passed over",
        "lease.lua",
        "want = math.min(want, most - held)",
        "want = want",
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
    ),
    Mutant(
        "the index of levels is raised",
        "include/wait_or_bury.lua",
        "call('ZADD', keys.due, 'LT',",
        "call('ZADD', keys.due,",
    ),
)


def _certain(self: Call, again: Any) -> None:
    """What may have happened passes for what certainly has not."""
    self.again = again


PYTHON = (
    Mutant(
        "a lost reply passes for a refusal", "", "rqretry.transport.replies:Call.put_off", _certain
    ),
    Mutant(
        "a publish is not repeated as it was",
        "",
        "rqretry.producer.lane:Publishing._repeated",
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
