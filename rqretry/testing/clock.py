"""Virtual time: the scripts read a key in place of TIME, and every other line stays as it is.

Each namespace has a clock of its own, so that labs can share a server.
"""

from functools import cache

from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.session import ServerClock

START_MS = 2_208_988_800_000
"""2040-01-01 00:00 UTC."""
CLOCK_PREFIX = "rqretry:virtual-clock:"
"""Followed by the namespace; holds milliseconds."""


def virtual_clock(key: str) -> str:
    """Lua that takes the place of lua/include/clock.lua.

    Args:
        key: A Lua expression for the key that holds the time in milliseconds.
    """
    return f"""
local function wall_ms()
  return tonumber(redis.call('GET', {key}))
end
"""


NO_INCARNATION = """
local function incarnation()
  return ''
end
"""
"""Lua in place of lua/include/incarnation.lua: of one life, in which lease numbers begin at 1."""

NEVER_FULL = """
local function is_nearly_full()
  return false
end
"""
"""Lua in place of lua/include/nearly_full.lua."""


def clock_key(namespace: str) -> str:
    """Where the time of a namespace is kept."""
    return CLOCK_PREFIX + namespace


@cache
def virtual_time() -> ScriptLibrary:
    """The scripts on the virtual clock; composed once, so that a server loads each one once."""
    own = f"'{CLOCK_PREFIX}' .. string.match(KEYS[1], '^rqretry:([^:]+):')"
    linked = {"incarnation": NO_INCARNATION, "nearly_full": NEVER_FULL}
    return ScriptLibrary(overrides={"clock": virtual_clock(own), **linked})


class VirtualClock(ServerClock):
    """What the lab's clients use as the server's time; ids and published_at come from it.

    It starts at the same time in every lab, so that a test sees the same ids in every run; far
    enough in the future, so that code which checks published_at finds no message too old.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ms = START_MS

    def note(self, now_ms: int, sent_at: float | None = None) -> None:
        """The lab alone moves this clock."""

    @property
    def known(self) -> bool:
        """Always."""
        return True

    def now_ms(self) -> int:
        """Virtual milliseconds since the epoch."""
        return self.ms

    def seconds(self, at_ms: float) -> float:
        """Seconds from the beginning of the lab to a virtual time."""
        return (at_ms - START_MS) / 1000
