"""What a live worker registers about itself."""

import json
from typing import NamedTuple


class About(NamedTuple):
    """The groups and topics that a worker process consumes."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pid: int | None = None


def groups_of(about: str) -> About:
    """Decode it; empty if another version wrote another format."""
    try:
        fields = json.loads(about)
        return About(tuple(fields["groups"]), tuple(fields["topics"]), fields.get("pid"))
    except (ValueError, TypeError, KeyError):
        return About()
