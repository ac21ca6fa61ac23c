"""What a fault proxy does to which request: rules, and random ones made from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from rqretry.protocol.scripts import Dialect, ScriptLibrary


class Fault(StrEnum):
    """What can happen to a request, its reply, or the line they are on.

    `amount` of a rule is milliseconds for those that take time, bytes for those that cut.
    """

    DROP_REQUEST = "drop request"
    """The server never sees it, and the connection is closed."""
    DROP_REPLY = "drop reply"
    """The server has executed it; the reply is lost and the connection is closed."""
    DELAY_REQUEST = "delay request"
    DELAY_REPLY = "delay reply"
    CUT_REQUEST = "cut request"
    """The server gets the first bytes of it; then both sides are reset."""
    CUT_REPLY = "cut reply"
    """The client gets the first bytes of the reply; then both sides are reset."""
    RESET = "reset"
    """The server never sees it, and the client's connection is reset."""
    HALF_CLOSE = "half-close"
    """The server gets it; the client is told that nothing more will come, and nothing does."""
    HALF_CLOSE_SERVER = "half-close the server"
    """The server gets it, and is told that nothing more will come."""
    REPLAY = "replay"
    """After its reply it is sent once more, on a connection of its own; that reply is dropped."""
    BLACK_HOLE = "black hole"
    """It and all that follow on this connection go nowhere; the connection stays open."""
    ONE_WAY = "one way"
    """The server gets it and all that follow on this connection; no reply ever comes back."""
    THROTTLE = "throttle"
    """From now on this connection passes `amount` bytes a second each way."""
    STALL = "stall"
    """Nothing passes on any connection for `amount` ms; then everything goes on."""
    REFUSE = "refuse"
    """All connections are reset, and for `amount` ms nobody can connect."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault, and when it strikes.

    Attributes:
        fault: What happens.
        verb: A script, such as "publish", or a command, such as "BZPOPMIN"; "" for any.
        nth: It strikes the nth request of this verb that the proxy sees, from 1.
        every: And every so many after that; 0 for never again.
        amount: Milliseconds, bytes or bytes a second; see Fault.
    """

    fault: Fault
    verb: str = ""
    nth: int = 1
    every: int = 0
    amount: int = 0

    def strikes(self, count: int) -> bool:
        """Whether it strikes the request with this number among those of its verb."""
        past = count - self.nth
        return past == 0 or (self.every > 0 and past > 0 and past % self.every == 0)


def always(fault: Fault, *verbs: str) -> list[Rule]:
    """Rules that strike every request of these verbs, of all scripts where none is named."""
    return [Rule(fault, verb, every=1) for verb in verbs or ScriptLibrary().names()]


@cache
def verbs() -> dict[bytes, str]:
    """The script that a digest names, in either dialect; both ways to publish are "publish"."""
    library = ScriptLibrary()
    return {
        library.get(verb).sha(dialect).encode(): verb.removesuffix("_with_options")
        for verb in library.names()
        for dialect in Dialect
    }


def verb_of(request_parts: Sequence[bytes]) -> str:
    """What a request asks for: the name of its script, else its command in capitals."""
    if not request_parts:
        return ""
    command = request_parts[0].upper()
    if command == b"EVALSHA" and len(request_parts) > 1:
        return verbs().get(request_parts[1].lower(), "EVALSHA")
    return command.decode("ascii", "replace")


_TARGETS = ("publish", "publish", "lease", "succeed", "fail", "expire", "promote", "BZPOPMIN", "")
_AMOUNTS: dict[Fault, tuple[int, int]] = {
    Fault.DELAY_REQUEST: (1, 300),
    Fault.DELAY_REPLY: (1, 300),
    Fault.CUT_REQUEST: (1, 200),
    Fault.CUT_REPLY: (0, 40),
    Fault.THROTTLE: (20_000, 200_000),
    Fault.STALL: (10, 400),
    Fault.REFUSE: (10, 400),
}


def random_rules(seed: int) -> list[Rule]:
    """One to four rules; the same for the same seed."""
    chance = random.Random(seed)
    rules = []
    for _ in range(chance.randint(1, 4)):
        fault = chance.choice(list(Fault))
        low, high = _AMOUNTS.get(fault, (0, 0))
        rules.append(
            Rule(
                fault,
                chance.choice(_TARGETS),
                nth=chance.randint(1, 20),
                every=chance.randint(5, 60),
                amount=chance.randint(low, high),
            )
        )
    return rules
