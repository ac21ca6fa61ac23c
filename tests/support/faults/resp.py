"""Where one request and one reply of the Redis protocol end, without decoding them.

A fault proxy cuts, drops and repeats whole requests and replies, so it must know their borders, of
RESP2 and of RESP3.
"""

from dataclasses import dataclass

_LINE = b"\r\n"
_ARGUMENTS_READ = 2
_LINES = frozenset(b"+-:_#,(")
_BULKS = frozenset(b"$!=")
_LISTS = frozenset(b"*~>")
_PAIRS = frozenset(b"%|")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it was sent.

    Attributes:
        raw: All its bytes.
        words: The first two words: the command, and of EVALSHA the digest of the script.
    """

    raw: bytes
    request_parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as it was sent; a push is not a reply to anything."""

    raw: bytes
    push: bool


class RequestReader:
    """Cuts what a client sends into requests."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Request]:
        """The requests that are complete now."""
        self._buffer += data
        found: list[Request] = []
        at = 0
        while (end := _request_end(self._buffer, at)) is not None:
            found.append(Request(self._buffer[at:end], _arguments(self._buffer, at)))
            at = end
        self._buffer = self._buffer[at:]
        return found


class ReplyReader:
    """Cuts what a server sends into replies."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that are complete now."""
        self._buffer += data
        found: list[Reply] = []
        at = 0
        while (end := frame_end(self._buffer, at)) is not None:
            found.append(Reply(self._buffer[at:end], self._buffer[at : at + 1] == b">"))
            at = end
        self._buffer = self._buffer[at:]
        return found


def frame_end(data: bytes, start: int) -> int | None:
    """Where the value that begins at `start` ends; None when it is not complete.

    Raises:
        ValueError: It is not a value of the protocol.
    """
    at, open_values = start, 1
    while open_values:
        line = data.find(_LINE, at)
        if line < 0:
            return None
        kind, text = data[at], data[at + 1 : line]
        at, open_values = line + 2, open_values - 1
        if kind in _BULKS:
            at += int(text) + 2 if text[:1] != b"-" else 0  # a negative length: nothing follows
            if at > len(data):
                return None
        elif kind in _LISTS:
            open_values += max(int(text), 0)
        elif kind in _PAIRS:
            open_values += 2 * int(text) + (kind == ord("|"))  # an attribute precedes its value
        elif kind not in _LINES:
            raise ValueError(f"no RESP value begins with {kind:#x}")
    return at


def _request_end(data: bytes, start: int) -> int | None:
    if start >= len(data):
        return None
    if data[start : start + 1] == b"*":
        return frame_end(data, start)
    line = data.find(b"\n", start)  # an inline command, as people type it
    return None if line < 0 else line + 1


def _arguments(data: bytes, start: int) -> tuple[bytes, ...]:
    if data[start : start + 1] != b"*":
        return tuple(data[start : data.find(b"\n", start)].split()[:_ARGUMENTS_READ])
    line = data.find(_LINE, start)
    count, at = int(data[start + 1 : line]), line + 2
    request_parts: list[bytes] = []
    for _ in range(min(count, _ARGUMENTS_READ)):
        line = data.find(_LINE, at)
        length = int(data[at + 1 : line])
        request_parts.append(data[line + 2 : line + 2 + length])
        at = line + 2 + length + 2
    return tuple(request_parts)
