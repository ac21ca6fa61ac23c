"""What a live worker registers about itself."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class About(NamedTuple):
    """The groups and topics that a worker process consumes, and what it cannot lease from.

    `scripts` is the version of its scripts; "" for one that does not say so. `tags` is what its
    consumers named at their start: group, topic and tags; `retries` the same of group, max_retries
    and policy, each None where it was not named. `facts` is all that it said.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pid: int | None = None
    refused: tuple[str, ...] = ()
    scripts: str = ""
    tags: tuple[tuple[str, str, str], ...] = ()
    facts: Mapping[str, Any] = {}
    retries: tuple[tuple[str, int | None, str | None], ...] = ()


def groups_of(about: str) -> About:
    """Decode it; empty if another version wrote another format."""
    try:
        fields = json.loads(about)
        refused = tuple(fields.get("refused", ()))
        scripts = str(fields.get("scripts", ""))
        found = tuple(fields["groups"]), tuple(fields["topics"]), fields.get("pid"), refused
        tags = tuple((str(g), str(t), str(named)) for g, t, named in fields.get("tags", ()))
        retries = tuple((str(g), most, policy) for g, most, policy in fields.get("retries", ()))
        return About(*found, scripts, tags, fields, retries)
    except (ValueError, TypeError, KeyError):
        return About()
