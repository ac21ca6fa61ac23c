"""Message groups in a test: sent, leased, and the line in which they stand."""

from typing import Any

from rqretry.protocol.publish import Prepared
from tests.support.builders import prepared
from tests.support.world import World


def sent(ids: str, group: str = "x", **options: Any) -> list[Prepared]:
    return [prepared(id_, group=group, **options) for id_ in ids]


def line(world: World, group: str = "g") -> list[str]:
    """The line: message group, number, id."""
    return [
        f"{name}{int(rest[:16])}{rest[16:]}"
        for name, rest in (member.split("\0") for member in world.state().get(f"{group}:line", ()))
    ]


def leased(world: World, *ids: str, prefer: str = "ready") -> list[str]:
    """Everything that can be leased now."""
    return world.lease(prefer=prefer).ids
