"""Bugs on purpose: the simulation is worth something if it finds each of them.

They are described as the cases of tests/meta/mutation are: by what a script sends or is answered,
and by the name of a method.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.replies import Call
from tests.meta.mutation.case import (
    Case,
    Change,
    LuaLine,
    Symbol,
    answers,
    drops,
    reads_state,
    scores,
    sends,
    setting,
    writes_state,
)
from tests.meta.mutation.cases.common import CHANGE, always, any_receipt
from tests.meta.mutation.cases.groups import IN_STEP
from tests.meta.mutation.cases.growth import as_addressed
from tests.meta.mutation.cases.periodic import lane_of_its_own
from tests.meta.mutation.cases.places import UNDOES_NOTHING
from tests.meta.mutation.cases.replays import from_the_beginning
from tests.meta.mutation.cases.waking import from_the_answer
from tests.meta.mutation.lua_changes import changed_scripts
from tests.meta.mutation.python_changes import replaced
from tests.model.simulation.plans import MINUTE_S, Plan
from tests.model.simulation.server import INCARNATION_KEY, virtual_scripts


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        name: What is wrong.
        changes: What makes it so.
        quick: A few seeds find it.
        where: A few of the seeds with such plans find it.
    """

    name: str
    changes: tuple[Change, ...]
    quick: bool = False
    where: Callable[[Plan], bool] | None = None


def bug(
    name: str,
    *changes: Change,
    quick: bool = False,
    where: Callable[[Plan], bool] | None = None,
) -> Mutant:
    """A bug of some changes."""
    return Mutant(name, changes, quick, where)


def behind(plan: Plan) -> bool:
    """Messages of simple consumers wait behind many."""
    return plan.backlog > 0


def kept_number(script: str) -> Change:
    """A script that does not count up the lease number."""
    return writes_state("lease - 1, attempt, expiries, postpones", script)


def _certain(_: Any) -> Any:
    """What may have happened passes for what certainly has not."""

    def put_off(self: Call, again: Any) -> None:
        self.again = again

    return put_off


def purging(plan: Plan) -> bool:
    """Operators purge, and ids are the caller's."""
    return plan.operators and plan.own_ids


def in_line(plan: Plan) -> bool:
    """Operators purge what stands in line."""
    return plan.operators and any(group.ordered for group in plan.groups)


def periodic(plan: Plan) -> bool:
    """There is a schedule, whose slots are not far apart."""
    return 0 < plan.every_s < MINUTE_S


def keeping(plan: Plan) -> bool:
    """What was consumed is kept for a while, or not all of it."""
    return plan.keep is not None


def newest_alone(original: Any) -> Any:
    """Of slots that are due at once one is published."""
    return lambda self, *times: original(self, *times)[-1:]


FREES_FIRST = (
    "local listed = redis.call('LRANGE', KEYS[3], 0, -1)"
    " if #listed > 0 then redis.call('HDEL', KEYS[11], unpack(listed)) end"
)
"""Of the keys of purge_list: the list, and the ids of callers."""

MUTANTS = (
    bug("any receipt settles", any_receipt()),
    bug("an acknowledgement may come late",
        answers("ZMSCORE", "inflight",
                "for i = 1, #args do answer[i] = answer[i] and answer[i] + 1e12 end", "succeed")),
    bug("expiry keeps the lease number", kept_number("expire"), quick=True),
    bug("failure keeps the lease number", kept_number("fail")),
    bug("redrive keeps the lease number", kept_number("redrive")),
    bug("a changed lease keeps its number", kept_number(CHANGE)),
    bug("publish has no memory of its lanes", sends("GET", "lane", "return false"), quick=True),
    bug("publish by any route",
        answers("HMGET", "meta",
                "local i = at(args, 'route') if i then answer[i] = ARGV[1] end", "publish",
                "publish_with_options"), quick=True),
    bug("delivered messages stay scheduled", drops("ZREM", "scheduled", "deliver"), quick=True),
    bug("promoted messages stay at their level",
        drops("ZREMRANGEBYRANK", "delay", "promote"), drops("ZREM", "delay", "promote")),
    bug("one delivery too many", setting("max_retries", "(tonumber(value) or 16) + 1")),
    bug("a body is deleted while it is owed", sends("HMGET", "pending", "return {}", "succeed"),
        quick=True),
    bug("the next in line stays where it is", drops("RPUSH", "ready", "succeed", "fail", "expire")),
    bug("two of a message group are out", sends("HMGET", "heads", "return {}")),
    bug("max_inflight is passed over", setting("max_inflight", "false", "lease")),
    bug("a half may come after the decision", sends("ZSCORE", "closed", "return false", "prepare")),
    bug("the other decision may follow",
        answers("HGET", "transactions",
                "answer = answer and string.gsub(answer, '^[a-z_]+', 'open')", "decide")),
    bug("the index of levels is raised",
        sends("ZADD", "due", "if args[1] == 'LT' then table.remove(args, 1) end")),
    bug("time is noted by what is written alone",
        sends("HSET", "meta", "if #args == 4 and args[1] == 'mark' then return 0 end")),
    bug("a date is a delay", scores("scheduled", "math.ceil(score)", "publish_with_options")),
    bug("a lost reply passes for a refusal", Symbol("Call.put_off", _certain)),
    bug("a publish is not repeated as it was", Symbol("Publishing._repeated", always(None))),
    bug("a call goes ahead of one that was not done",
        sends("GET", "lane", "if key ~= KEYS[2] then return ARGV[7] end")),
    bug("data from an older file go unnoticed",
        answers("HGET", "meta", f"answer = redis.call('GET', '{INCARNATION_KEY}') or ''", "lease")),
    bug("a lease that is refused is not taken back", LuaLine("lease", UNDOES_NOTHING)),
    bug("a lease is trusted from its answer", Symbol("ServerClock.ran_at", from_the_answer)),
    bug("what was addressed before growth stays there", Symbol("Publishing.call", as_addressed)),
    bug("nothing keeps a slot from being repeated", Symbol("Publishing.call", lane_of_its_own),
        sends("HMGET", "ids", "return {}", "publish_with_options"), where=periodic),
    bug("of slots that are due at once one is published",
        Symbol("Timetable.pending", newest_alone), where=periodic),
    bug("a group goes back as far as it can", Symbol("Backfill.replay", from_the_beginning),
        where=keeping),
    bug("a replay leaves what it gave", drops("ZREM", "consumed", "replay"), where=keeping),
    bug("what is kept stays for ever", answers("ZRANGEBYSCORE", "kept", "answer = {}", "sweep"),
        where=keeping),
    bug("a replay uses the numbers of first leases",
        writes_state("1, attempt, expiries, postpones", "replay"), where=keeping),
    bug("what is given back was not delivered",
        writes_state("lease, attempt - 1, expiries, postpones", CHANGE), where=behind),
    bug("a message may be released for ever",
        reads_state("lease, attempt, expiries, 0", "release"), where=behind),
    bug("a record has only the deliveries that expired", drops("HSET", "failures", CHANGE),
        where=behind),
    bug("who is out is purged as blocked",
        answers("HGET", "heads", "answer = false", "scan_blocked"),
        answers("HMGET", "heads", "answer = {}", "purge_blocked"), where=in_line),
    bug("a purge of a list takes what was not chosen",
        LuaLine("purge_list", "for i = 6, #ARGV, 2 do ARGV[i] = '1' end"), where=purging),
    bug("a purge of a list frees ids before their messages are gone",
        LuaLine("purge_list", FREES_FIRST), where=purging),
    bug("one preference is shared by all partitions", *IN_STEP, where=behind),
    bug("new messages always go first", Symbol("Turns.next_lane", always("ready")), where=behind),
)  # fmt: skip


@contextmanager
def applied(mutant: Mutant, folder: Path) -> Iterator[ScriptLibrary]:
    """The scripts with the bug; a bug of Python is there as long as the context is."""
    case = Case("", mutant.name, mutant.changes, ())
    with replaced(case.python):
        if not case.lua:
            yield virtual_scripts()
            return
        folder.mkdir(exist_ok=True)
        yield virtual_scripts(ScriptLibrary(directory=changed_scripts(case.lua, folder)))
