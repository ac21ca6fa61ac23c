"""Why a message is not running, in one sentence for each group, and what became of it."""

from collections.abc import Collection, Sequence

from rqretry.admin.views import GroupState, MessageView, TimelineEvent, date
from rqretry.core.durations import spell
from rqretry.core.failure_record import read_record
from rqretry.core.message_id import born_ms
from rqretry.core.route import RouteGroup
from rqretry.protocol.inspect import Peeked
from rqretry.protocol.transaction import OPEN, PARKED, Record

_ENDS = {"succeed": "committed", "purge": "purged"}


def states(
    groups: Sequence[RouteGroup],
    peeked: Sequence[Peeked],
    timeline: Sequence[TimelineEvent] = (),
    served: Collection[str] = (),
    tag: str = "",
) -> list[GroupState]:
    """The state of a message in each group; `tag` is the message's."""
    some_have = any(_has(p) for p in peeked)
    found = []
    for group, p in zip(groups, peeked, strict=True):
        ours = [e for e in timeline if e.group == group.name]
        leases = [e for e in ours if e.event == "lease"]
        live = group.kind != "push" or group.name in served
        if group.byte and not (group.takes(tag) or leases or _has(p) or _is_early(p)):
            found.append(_filtered(group, tag))
            continue
        found.append(_state(group, p, ours, some_have=some_have, live=live))
    return found


def _has(p: Peeked) -> bool:
    """Whether the message was found in one of this group's lists or sets."""
    found = (p.in_ready, p.in_retry, p.deadline_ms, p.dead_since_ms, p.ahead)
    return bool(p.waiting) or any(where is not None for where in found)


def _is_early(p: Peeked) -> bool:
    """Whether no group has the message yet."""
    return p.scheduled_ms is not None or p.in_backlog is not None


def _filtered(group: RouteGroup, tag: str) -> GroupState:
    what = f"its tag is {tag}" if tag else "it has no tag"
    why = f"not for this group, which takes {group.tags}: {what}"
    return GroupState(group.name, "filtered", 0, None, why)


def _state(
    group: RouteGroup, p: Peeked, ours: Sequence[TimelineEvent], *, some_have: bool, live: bool
) -> GroupState:
    attempt = int(p.delivery_state.split(":")[1]) if p.delivery_state else 1
    errors = tuple(read_record(p.failures))

    def made(state: str, due_ms: int | None, explain: str) -> GroupState:
        return GroupState(group.name, state, attempt, due_ms, explain, errors)

    if p.dead_since_ms is not None:
        deliveries, cause, *_ = *p.death.split(" "), ""
        last = f": {errors[-1].message}" if errors and errors[-1].message else ""
        noun = "delivery" if deliveries == "1" else "deliveries"
        return made("dead", None, f"dead after {deliveries} {noun}, cause {cause}{last}")
    if p.deadline_ms is not None:
        return made("inflight", p.deadline_ms, _why_inflight(p, attempt, ours))
    if p.waiting:
        return made("waiting_retry", p.waiting[0][1], _why_waiting(p, attempt, live=live))
    if p.scheduled_ms is not None:
        when = spell(max(0, p.scheduled_ms - p.now_ms) / 1000)
        return made("scheduled", p.scheduled_ms, f"published with a delay, due in {when}")
    if group.byte == 0 or p.in_backlog is not None:
        return made("ready", None, "waits in the backlog: the topic has no consumer group yet")
    if group.ordered and p.ahead is not None and p.head:
        ahead = f"behind {p.head} in its message group, {p.ahead} messages are ahead of it"
        return made("ready", None, f"{ahead}{_also(p, live=live)}")
    here = p.in_ready is not None or p.in_retry is not None
    if not here and (p.byte not in p.owed if p.owed else some_have):
        done = (
            next((f": {text}" for name, text in outcomes(ours).items() if name), "") if ours else ""
        )
        return made("committed", None, f"this group has finished with it{done}")
    return made("ready", None, _why_ready(p, live=live))


def _why_inflight(p: Peeked, attempt: int, ours: Sequence[TimelineEvent]) -> str:
    deadline_ms = p.deadline_ms or 0
    leases = [event for event in ours if event.event == "lease"]
    who = f"worker {leases[-1].worker}" if leases else "a worker"
    since = f" since {date(leases[-1].at_ms)}" if leases else ""
    left = (deadline_ms - p.now_ms) / 1000
    if left > 0:
        until = f"until {date(deadline_ms)}, for {spell(left)} more"
        return f"{who} has it{since}, attempt {attempt}, {until}"
    return (
        f"{who} had it{since}, attempt {attempt}, past its deadline {date(deadline_ms)},"
        " until it expires"
    )


def _why_waiting(p: Peeked, attempt: int, *, live: bool) -> str:
    level, due_ms = p.waiting[0]
    left = (due_ms - p.now_ms) / 1000
    if left > 0:
        when = f"due in {spell(left)}, at {date(due_ms)}"
        return f"waits on level {level}, {when}, then attempt {attempt}{_also(p, live=live)}"
    late = f"was due {spell(-left)} ago" if left < 0 else "is due now"
    moved = "" if live else ": no worker, receive or reaper has moved it yet"
    return f"waits on level {level} and {late}{moved}{_also(p, live=live)}"


def _also(p: Peeked, *, live: bool) -> str:
    if p.paused:
        return "; the group is paused"
    return "" if live else "; the group has no live worker"


def _why_ready(p: Peeked, *, live: bool) -> str:
    if p.paused:
        return "the group is paused"
    if p.max_inflight is not None and p.inflight >= p.max_inflight:
        has = f"{p.inflight} in flight in this partition, of at most {p.max_inflight}"
        return f"ready, but the group is at its max_inflight: it has {has}"
    before = p.in_retry if p.in_retry is not None else p.in_ready
    ahead = "" if before is None else f", {before} messages are ahead of it"
    if not live:
        return f"ready, but the group has no live worker{ahead}"
    limit = f"; the group takes {p.rate} (rate_limit)" if p.rate else ""
    return f"ready, no worker has taken it yet{ahead}{limit}"


def why_half(record: Record | None, next_ms: int | None, now_ms: int) -> str:
    """Why a message of a transaction is not delivered, in one sentence."""
    if record is None:
        return "it belongs to an unknown transaction; see rqretry fsck"
    if record.state == PARKED:
        return (
            f"its transaction {record.id} is unresolved and parked after {record.checks} checks:"
            " see rqretry transaction show"
        )
    if record.state != OPEN:
        return f"its transaction {record.id} is {record.state}, which is being carried out"
    unresolved_ = f"its transaction {record.id} is unresolved: check"
    number = min(record.checks + 1, record.terms.most)
    left = max(0, (next_ms or now_ms) - now_ms) / 1000
    return f"{unresolved_} {number} of {record.terms.most} in {spell(left)}"


def outcomes(events: Sequence[TimelineEvent]) -> dict[str, str]:
    """What became of a message that is no longer stored, for each group that had it."""
    last = {event.group: event for event in events if event.group}
    outcomes = {
        group: f"{_ENDS.get(event.event, event.event)} at {date(event.at_ms)} by {event.worker}"
        for group, event in last.items()
    }
    return outcomes or {"-": f"{events[-1].event} at {date(events[-1].at_ms)}; no longer stored"}


def view_from_history(id_: str, events: Sequence[TimelineEvent]) -> MessageView:
    """A message that is no longer stored, from its history."""
    last = {event.group: event.event for event in events}
    attempts = {event.group: event.attempt for event in events if event.attempt}
    states = [
        GroupState(
            group, _ENDS.get(last.get(group, ""), "gone"), attempts.get(group, 0), None, outcome
        )
        for group, outcome in outcomes(events).items()
    ]
    first = events[0]
    return MessageView(
        id_, first.topic, first.partition, None, None, (), {}, born_ms(id_), tuple(states),
        tuple(events), stored=False,
    )  # fmt: skip
