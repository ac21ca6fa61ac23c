"""The keys and arguments of every script, declared once.

A command takes its keys from here, in this order, and a line `-- @bind` of a script gives them
these names. That headers and arguments of commands agree is tested (tests/lua/test_signatures.py).
"""

import re
from typing import Any, NamedTuple

_DECLARED = """
audit_append: meta records | actor verb arguments counts most
backfill_check: meta config bodies pending big incoming | cursor
blockers: meta retry inflight attempts failures order message_groups, then levels | most:number
browse: meta location attempts failures heads bodies big | structure position after count:number
    byte_limit:number
catch_up: meta config ready attempts bodies pending events counters location | group actor
    structure owner offset:number count:number
change_visibility: meta config retry inflight attempts failures dead deaths due wake events counters
    bodies pending ready order heads message_groups fingerprints, then levels | group worker
    duration_ms:number, then id and lease_no of each message
claim: meta transactions unfinished_transactions parked_transactions, then checks of each producer
    group | lease_ms limit:number expected_ms:number hold_ms:number
commit: meta scheduled halves half_of closed events counters message_groups | transaction worker
    decided_ms:number limit:number
compare_and_set: meta records | field expected replacement
configure: meta config wake | here version:number, then field and value of each setting
dead_clusters: deaths failures fingerprints | first count:number
dead_letter: meta config location attempts failures dead deaths inflight bodies pending events
    counters ready wake due order heads message_groups fingerprints | group actor structure record,
    then id and answer of each message looked at
dead_letters: meta dead deaths failures fingerprints bodies big | with_bodies:flag
    byte_limit:number count:number after_ms after_id upto_ms:number fingerprint, then ids
decide: meta transactions checks unfinished_transactions parked_transactions | id decision worker
    lease_ms claim reason
defer: meta transactions checks parked_transactions | id claim reason
deliver: meta bodies pending scheduled backlog events counters big ids_key id_expiry
    message_groups keyed message_keys, then ready and wake of each group, then order and heads of
    each ordered one, then broadcast, where the topic has a broadcast group | route_version worker
    limit:number expected_ms:number hold_ms:number groups:number, then name and byte of each group,
    then member and targets of each message looked at
enlist: meta transactions open_transactions finished_transactions checks | id partition known:flag
    group topic worker after_ms every_ms most seen_ms:number
expire: meta config retry inflight attempts failures dead deaths due wake events counters bodies
    pending ready order heads message_groups fingerprints, then levels | group worker limit:number
    expected_ms:number hold_ms:number random:number
fail: meta config inflight attempts failures dead deaths tracebacks due wake bodies pending events
    counters ready order heads message_groups fingerprints, then levels | group worker
    traces:number stride:number random:number common_no shared:number times, then fingerprint and
    text of each traceback, then records that messages share, then id, lease_no, level, delay_ms,
    random, cause and record of each message
feed_dlq_group: meta config dead ready attempts failures deaths wake events counters | group worker
    limit:number
finish: meta transactions open_transactions finished_transactions unfinished_transactions
    parked_transactions | id, then partitions
lease: meta config ready retry inflight attempts dead due wake bodies big pending scheduled events
    counters failures order heads message_groups, then deaths and origins of a group that consumes
    dead letters | group worker want:number byte_limit:number visibility_ms:number prefer
    tokens:flag expected_ms:number
leave: meta counters config attempts failures tracebacks deaths fingerprints due wake consumed
    positions ready retry heads inflight dead order, then levels | group membership stuck:flag
now: meta
peek: meta config ready retry inflight attempts failures dead deaths bodies pending scheduled
    backlog order heads message_groups, then levels | id most:number
poll: meta config ready retry inflight due scheduled, then those of each other place
prepare: meta bodies big ids_key id_expiry halves half_of closed events counters keyed
    message_keys incoming | route_version transaction worker seen_ms:number blob, then number, id,
    body, digest, tag, message_group and keys of each message
promote: meta retry due wake events counters config order heads message_groups, then levels | group
    worker limit:number expected_ms:number hold_ms:number upto only, then ids to take from that
    level
publish: meta lane bodies big pending backlog events counters, then ready and wake of each
    group, then the lane of the call in front, if any | route_version seq checksum lane_ttl_ms
    worker blob in_front groups:number messages:number, then name and byte of each group, then id
    and body of each message
publish_with_options: meta lane bodies big pending backlog events counters ids_key id_expiry
    scheduled message_groups half_of keyed message_keys incoming, then ready and wake of each group,
    then order and heads of each ordered one, then broadcast, where the topic has a broadcast group,
    then the lane of the call in front, if any | route_version seq checksum lane_ttl_ms worker blob
    in_front groups:number messages:number mode, then name and byte of each group, then id and body
    of each message, then options of each message
purge: meta config attempts failures location deaths bodies big pending ids_key id_expiry inflight
    events counters ready wake order heads message_groups dead keyed message_keys fingerprints |
    group actor membership, then ids
purge_blocked: meta config order heads message_groups attempts failures bodies big pending ids_key
    id_expiry events counters keyed message_keys dead | group actor membership, then members of
    the order
purge_list: meta config location attempts failures dead inflight bodies big pending ids_key
    id_expiry events counters ready wake order heads message_groups keyed message_keys | group
    actor limit:number membership, then id and answer of each message looked at
rate_set: bucket | version:number tokens_per_ms burst:number
rate_take: bucket | want:number returned:number
reasons: retry attempts failures, then levels | most_looked:number most:number
recall: meta scheduled bodies big pending ids_key id_expiry events counters keyed message_keys |
    worker id member
record_series: meta series, then rings | minute, then name, due, succeeded and failed of each
redrive: meta config ready inflight attempts failures dead deaths wake bodies events counters due
    order heads message_groups pending fingerprints, then levels | group actor, then id, delay_ms
    and record of each message
register: meta workers worker_details settings | ttl_ms:number worker about
release: meta config ready retry inflight attempts dead due wake bodies pending events counters
    deaths, then levels | group worker max_postpones:number times, then id, lease_no and delay_ms
    of each message
renew: meta config inflight attempts dead bodies pending | visibility_ms:number
    expected_ms:number, then id and lease_no of each message
repair_order: meta config ready retry inflight attempts dead wake order heads bodies pending
    message_groups events counters, then levels | group actor what, then names, members or ids
repair_orphans: meta bodies pending big message_groups ids_key id_expiry scheduled backlog halves
    half_of keyed message_keys | what, then ids, members or pairs
repair_owners: meta bodies pending scheduled backlog half_of message_groups events, then ready
    retry inflight dead order and levels of each group | actor level_count:number
    group_count:number, then byte of each group, then id, member and targets of each message
repair_places: meta config ready retry inflight attempts failures dead deaths due wake order heads
    bodies pending message_groups events counters fingerprints, then levels | group actor what,
    then ids or members
replay: meta config ready inflight attempts failures dead bodies big pending kept kept_bodies
    location events counters wake order heads message_groups keyed message_keys | group actor
    record since upto limit:number route:number
rollback: meta halves half_of closed bodies big pending ids_key id_expiry events counters keyed
    message_keys | transaction worker limit:number
roster: meta workers worker_details | after_ms:number
scan_blocked: meta order heads failures | after count:number
scan_group: meta location attempts failures | structure offset:number count:number
scheduled: meta scheduled | limit:number
stats: meta config ready retry inflight dead scheduled backlog counters bodies order heads
    message_groups ids_key, then levels
subscribe: meta backlog ready wake counters order heads message_groups | here version:number
    route_table group limit:number max_messages ordered:flag history_bytes history_ms
    keep_ms keep_bytes queued:flag
succeed: meta config inflight attempts failures dead bodies big pending ids_key id_expiry events
    counters wake ready order heads message_groups keyed message_keys kept kept_bodies consumed,
    then deaths of a group that consumes dead letters | group worker strict:flag stride:number
    common_no times, then id and lease_no of each message
sweep: meta ids_key id_expiry closed events broadcast kept kept_bodies bodies big incoming counters,
    then config, dead and consumed of each group | limit:number
tally: meta counters | group, then verb and count of each counter
"""
"""Of each script its keys, as attributes of keys.py, and behind a bar its arguments.

A name that ends in _key is the attribute before it: many texts have a list of that name.
"""

_READ = {"": "{}", "number": "tonumber({})", "flag": "{} == '1'"}
"""How an argument of each type is read; without a type it is text."""


class Signature(NamedTuple):
    """What a script is called with: names, and behind ", then" what there may be many of."""

    keys: str
    arguments: str

    @staticmethod
    def fixed(names: str) -> list[str]:
        """The names of which each stands for one key or argument."""
        return [name.partition(":")[0] for name in names.partition(",")[0].split()]

    def binding(self, *, table: bool) -> str:
        """A line of Lua that gives keys and arguments their names; `table`: and keys by name."""
        keys, typed = self.fixed(self.keys), self.arguments.partition(",")[0].split()
        bound = [f"local {', '.join(keys)} = unpack(KEYS, 1, {len(keys)})"]
        if typed:
            pairs = [name.partition(":")[::2] for name in typed]
            values = [_READ[kind].format(f"ARGV[{n}]") for n, (_, kind) in enumerate(pairs, 1)]
            bound.append(f"local {', '.join(name for name, _ in pairs)} = {', '.join(values)}")
        for source, names, fixed in (("KEYS", self.keys, keys), ("ARGV", self.arguments, typed)):
            many = names.partition(", then ")[2]
            if many.isidentifier():
                bound.append(f"local {many} = {{ unpack({source}, {len(fixed) + 1}) }}")
        if table:
            bound.append(f"local keys = {{ {', '.join(f'{key} = {key}' for key in keys)} }}")
        return "; ".join(bound)


def _signatures() -> dict[str, Signature]:
    declared = (one.partition(": ") for one in re.split(r"\n(?=\S)", _DECLARED.strip()))
    split = {name: " ".join(text.split()).partition(" | ") for name, _, text in declared}
    return {name: Signature(keys, arguments) for name, (keys, _, arguments) in split.items()}


SIGNATURES = _signatures()


class ScriptKeys(dict[str, tuple[str, ...]]):
    """The keys of each script for one consumer group, partition or namespace; found once."""

    def __init__(self, *owners: object) -> None:
        """The keys are attributes of the owners."""
        super().__init__()
        self._owners = owners

    def __missing__(self, script: str) -> tuple[str, ...]:
        """Find the keys when the script is first called."""
        return self.setdefault(script, self.completed(script))

    def completed(self, script: str, **own: str) -> tuple[str, ...]:
        """The keys of a script of which some are each call's own."""
        keys = SIGNATURES[script].keys
        names = (name.removesuffix("_key") for name in Signature.fixed(keys))
        found = [own.get(name) or self._of_owner(name) for name in names]
        many = keys.partition(", then ")[2]
        return (*found, *(self._of_owner(many) if many.isidentifier() else ()))

    def _of_owner(self, name: str) -> Any:
        return next(getattr(owner, name) for owner in self._owners if hasattr(owner, name))
