"""What a live worker says about itself in the roster."""

import json
from typing import NamedTuple


class About(NamedTuple):
    """The groups and topics a worker process serves."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pid: int | None = None


def groups_of(about: str) -> About:
    """Read it; what another version wrote in another way is nothing."""
    try:
        fields = json.loads(about)
        return About(tuple(fields["groups"]), tuple(fields["topics"]), fields.get("pid"))
    except (ValueError, TypeError, KeyError):
        return About()
