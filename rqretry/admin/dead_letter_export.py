"""A dead letter as a line of JSON."""

import base64
from typing import Any

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError


def as_json(letter: DeadLetterRecord) -> dict[str, Any]:
    """A dead letter as values that JSON can hold."""
    fields: dict[str, Any] = {
        "id": letter.id,
        "topic": letter.topic,
        "group": letter.group,
        "tag": letter.tag,
        "keys": list(letter.keys),
        "headers": letter.headers,
        "born_ms": letter.born_ms,
        "attempt": letter.attempt,
        "cause": letter.cause,
        "error": letter.error,
        "fingerprint": letter.fingerprint,
        "dead_since_ms": letter.dead_since_ms,
        "errors": [
            {
                "attempt": error.attempt,
                "at_ms": error.at_ms,
                "cause": error.cause,
                "type": error.type,
                "message": error.message,
                "fingerprint": error.fingerprint,
                "worker": error.worker,
            }
            for error in letter.errors
        ],
    }
    if isinstance(letter.body, bytes) or (letter.body is None and not _readable(letter.raw)):
        data = letter.body if isinstance(letter.body, bytes) else letter.raw
        return fields | {"body_base64": base64.b64encode(data).decode()}
    return fields | {"body": letter.body}


def _readable(raw: bytes) -> bool:
    try:
        decode(raw)
    except CodecError:
        return False
    return True
