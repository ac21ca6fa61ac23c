"""What a live worker registers about itself."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rqretry.core.limits import DLQ


class About(NamedTuple):
    """The groups and topics that a worker process consumes, and what it cannot lease from.

    `scripts` is the version of its scripts; "" for one that does not say so. `tags` is what its
    consumers named at their start: group, topic and tags; `retries` the same of group, max_retries
    and policy, each None where it was not named. `facts` is all that it said, of which `consumed`
    is left out where it is every topic for every group.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pid: int | None = None
    refused: tuple[str, ...] = ()
    scripts: str = ""
    tags: tuple[tuple[str, str, str], ...] = ()
    facts: Mapping[str, Any] = {}
    retries: tuple[tuple[str, int | None, str | None], ...] = ()
    consumed: Mapping[str, frozenset[str]] = {}
    """By group, its topics."""
    slots: Mapping[str, tuple[int, int]] = {}
    """By group, how many of its slots ran an attempt, and how many it has."""
    rates: Mapping[tuple[str, str], float] = {}
    """By topic and group, how many messages a second it finished in the last minute."""

    def serves(self, group: str, topic: str) -> bool:
        """Whether it consumes this topic for the group, or the dead letters of another group."""
        names = self.consumed.get(group, frozenset())
        return topic in names or any(name.startswith(DLQ) for name in names)


def groups_of(about: str) -> About:
    """Decode it; empty if another version wrote another format."""
    try:
        fields = json.loads(about)
        refused = tuple(fields.get("refused", ()))
        scripts = str(fields.get("scripts", ""))
        found = tuple(fields["groups"]), tuple(fields["topics"]), fields.get("pid"), refused
        tags = tuple((str(g), str(t), str(named)) for g, t, named in fields.get("tags", ()))
        retries = tuple((str(g), most, policy) for g, most, policy in fields.get("retries", ()))
        every = frozenset(found[1])
        some = {str(g): frozenset(names) for g, names in fields.get("consumed", {}).items()}
        consumed = some or dict.fromkeys(found[0], every)
        slots = {str(g): (int(busy), int(all_)) for g, (busy, all_) in fields.get("of", {}).items()}
        rates = {(str(t), str(g)): float(rate) for t, g, rate in fields.get("rates", ())}
        return About(*found, scripts, tags, fields, retries, consumed, slots, rates)
    except (ValueError, TypeError, KeyError, AttributeError):
        return About()
