"""Looking at one message: where it is for each group, why it is not running, and what happened."""

from collections.abc import Iterable, Sequence

from rqretry.catalog import Catalog
from rqretry.codec import Envelope, decode
from rqretry.command import Operation
from rqretry.commands.administering import Peeked, history, peek
from rqretry.durations import spell
from rqretry.errors import CodecError
from rqretry.failures import read_record
from rqretry.ids import born_ms
from rqretry.records import TopicRecord
from rqretry.routes import RouteGroup
from rqretry.views import Event, GroupState, MessageView

_NO_GROUP = RouteGroup("-", 0, "")
_LOOK_BACK_MS = 60_000
_PAGE, _PAGES = 1000, 50


def look(
    catalog: Catalog, topic: TopicRecord, partition: int, id_: str
) -> Operation[MessageView | None]:
    """The message, if this partition stores it."""
    groups = topic.groups or (_NO_GROUP,)
    keys = [catalog.group_keys(topic.name, partition, group.name) for group in groups]
    peeked: list[Peeked] = yield [peek(key, id_) for key in keys]
    if not peeked[0].stored:
        return None
    try:
        envelope = decode(peeked[0].body)
    except CodecError:
        envelope = Envelope(None, None, (), {}, None, None)
    timeline = yield from read_timeline(catalog, topic.name, partition, id_, born(id_, envelope))
    return MessageView(
        id=id_,
        topic=topic.name,
        partition=partition,
        body=envelope.body,
        tag=envelope.tag,
        keys=envelope.keys,
        headers=dict(envelope.headers),
        born_ms=born(id_, envelope),
        states=tuple(states(groups, peeked)),
        timeline=tuple(timeline),
    )


def born(id_: str, envelope: Envelope) -> int | None:
    """When a message was published, milliseconds since the epoch."""
    return envelope.born_ms or born_ms(id_)


def states(groups: Sequence[RouteGroup], peeked: Sequence[Peeked]) -> list[GroupState]:
    """Where the message is, for each group."""
    some_list = any(p.in_ready is not None or p.in_retry is not None for p in peeked)
    return [_state(group, p, some_list) for group, p in zip(groups, peeked, strict=True)]


def read_timeline(
    catalog: Catalog, topic: str, partition: int, id_: str, since_ms: int | None
) -> Operation[list[Event]]:
    """What the partition's history says of a message: a bounded scan from its birth on."""
    keys = catalog.partition(topic, partition)
    start = str(max(0, (since_ms or 0) - _LOOK_BACK_MS))
    events: list[Event] = []
    wanted = id_.encode()
    for _ in range(_PAGES):
        page = yield history(keys, start=start, count=_PAGE)
        for entry_id, fields in page:
            if wanted in fields["i"]:
                events += _events(entry_id, fields, wanted)
        if len(page) < _PAGE:
            break
        start = f"({page[-1][0]}"
    return events


def _events(entry_id: str, fields: dict[str, bytes], wanted: bytes) -> Iterable[Event]:
    ids, notes = fields["i"].split(b" "), fields["d"].split(b" ")
    for place, id_ in enumerate(ids):
        if id_ == wanted:
            note = notes[place].decode() if place < len(notes) else ""
            yield Event(
                int(entry_id.partition("-")[0]),
                fields["e"].decode(),
                fields["g"].decode(),
                fields["w"].decode(),
                note,
            )


def _state(group: RouteGroup, p: Peeked, some_list: bool) -> GroupState:  # noqa: FBT001 - private
    attempt = int(p.entry.split(":")[1]) if p.entry else 1
    errors = tuple(read_record(p.failures))

    def made(state: str, due_ms: int | None, explain: str) -> GroupState:
        return GroupState(group.name, state, attempt, due_ms, explain, errors)

    if p.dead_since_ms is not None:
        deliveries, _, cause = p.grave.partition(" ")
        last = f": {errors[-1].message}" if errors and errors[-1].message else ""
        return made("dead", None, f"dead after {deliveries} deliveries, cause {cause}{last}")
    if p.deadline_ms is not None:
        left = p.deadline_ms - p.now_ms
        when = (
            f"for {spell(left / 1000)} more" if left > 0 else "past its deadline, until it expires"
        )
        return made("inflight", p.deadline_ms, f"a worker has it, attempt {attempt}, {when}")
    if p.waiting:
        level, due_ms = p.waiting[0]
        when = f"due in {spell(max(0, due_ms - p.now_ms) / 1000)}"
        return made(
            "waiting_retry", due_ms, f"waits on level {level}, {when}, then attempt {attempt}"
        )
    if p.scheduled_ms is not None:
        when = spell(max(0, p.scheduled_ms - p.now_ms) / 1000)
        return made("scheduled", p.scheduled_ms, f"published with a delay, due in {when}")
    if group.byte == 0 or p.in_backlog is not None:
        return made("ready", None, "waits in the backlog: the topic has no consumer group yet")
    here = p.in_ready is not None or p.in_retry is not None
    if not here and (p.byte not in p.owed if p.owed else some_list):
        return made("committed", None, "this group has finished with it")
    return made("ready", None, _why_ready(p))


def _why_ready(p: Peeked) -> str:
    if p.paused:
        return "the group is paused"
    place = p.in_retry if p.in_retry is not None else p.in_ready
    ahead = "" if place is None else f", {place} messages are ahead of it"
    return f"ready, no worker has taken it yet{ahead}"
