"""Large bodies reach the server outside of scripts, where each byte would be copied and hashed.

They are written in the transaction of the script that takes them (docs/decisions/0110).
"""

from collections.abc import Iterable
from hashlib import blake2b

LARGE = 65536
"""A larger body does not pass through a script."""
_DIGEST_BYTES = 8


def write_ahead(
    incoming: str, bodies: str, messages: Iterable[tuple[str, bytes]]
) -> tuple[tuple[tuple[str | bytes, ...], ...], list[bytes]]:
    """What stores the large bodies in front of a script, and all bodies as the script takes them.

    A zero byte, with which no message begins, and a checksum stand for a large one.

    Args:
        incoming: The key of the checksums of bodies that are no message's yet.
        bodies: The key of the bodies.
        messages: The id and the bytes of each.
    """
    ahead: list[tuple[str | bytes, ...]] = []
    taken: list[bytes] = []
    for id_, data in messages:
        if len(data) <= LARGE:
            taken.append(data)
            continue
        checksum = blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
        ahead.append(("HSETNX", incoming, id_, checksum))
        ahead.append(("HSETNX", bodies, id_, data))
        taken.append(b"\0" + checksum.encode())
    return tuple(ahead), taken
