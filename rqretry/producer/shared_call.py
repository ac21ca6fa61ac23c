"""One call for several callers: what they publish while a call is under way goes in the next.

Each of them is answered for its own messages alone. Whether its caller waits in a coroutine or in a
thread is up to publisher.py and sender_thread.py.
"""

import copy
from collections.abc import Callable, Sequence

from rqretry.core.errors import AmbiguousResult, QueueFull, RqretryError
from rqretry.core.message_id import MessageId
from rqretry.protocol.command import Operation
from rqretry.protocol.publish import Prepared

Answer = list[MessageId | Exception] | Exception
"""What a caller gets: an id or an error for each of its messages, or the error of its call."""


Send = Callable[[Sequence[Prepared]], Operation[list[MessageId | Exception]]]
"""What sends one call."""


def send_shared(send: Send, parts: Sequence[Sequence[Prepared]]) -> Operation[list[Answer]]:
    """Send what several callers publish in one call; what each of them is answered.

    A topic that has no room for all of them takes those that came first.
    """
    sent, refused = list(parts), list[Answer]()
    while True:
        messages = [message for part in sent for message in part]
        try:
            answers = (yield from send(messages)) if messages else []
        except QueueFull as error:
            fitting = _fitting(sent, error.room)
            refused = [*(_own(error, part) for part in sent[fitting:]), *refused]
            del sent[fitting:]
        except Exception as error:  # noqa: BLE001 - every caller gets it
            return [*(_own(error, part) for part in sent), *refused]
        else:
            streams = iter(answers)
            return [*([next(streams) for _ in part] for part in sent), *refused]


def _fitting(parts: Sequence[Sequence[Prepared]], room: int) -> int:
    """How many of the first of them a topic with so much room takes; never all."""
    for number, part in enumerate(parts[:-1]):
        room -= len(part)
        if room < 0:
            return number
    return len(parts) - 1


def _own(error: Exception, messages: Sequence[Prepared]) -> Exception:
    """An error of a shared call, as one of its callers gets it: with its own ids."""
    if isinstance(error, AmbiguousResult):
        return type(error)("publish", [message.id for message in messages], error.reason)
    if not isinstance(error, RqretryError):
        return error
    own = copy.copy(error)  # where it is raised again it gets a traceback, and perhaps a note
    own.__cause__ = error.__cause__
    return own
