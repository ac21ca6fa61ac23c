"""What a live worker registers about itself."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class About(NamedTuple):
    """The groups and topics that a worker process consumes, and what it cannot lease from.

    `scripts` is the version of its scripts; "" for one that does not say so. `tags` is what its
    consumers named at their start: group, topic and tags. `facts` is all that it said.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pid: int | None = None
    refused: tuple[str, ...] = ()
    scripts: str = ""
    tags: tuple[tuple[str, str, str], ...] = ()
    facts: Mapping[str, Any] = {}


def groups_of(about: str) -> About:
    """Decode it; empty if another version wrote another format."""
    try:
        fields = json.loads(about)
        refused = tuple(fields.get("refused", ()))
        scripts = str(fields.get("scripts", ""))
        found = tuple(fields["groups"]), tuple(fields["topics"]), fields.get("pid"), refused
        tags = tuple((str(g), str(t), str(named)) for g, t, named in fields.get("tags", ()))
        return About(*found, scripts, tags, fields)
    except (ValueError, TypeError, KeyError):
        return About()
