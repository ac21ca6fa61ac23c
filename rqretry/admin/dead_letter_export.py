"""A dead letter as JSON."""

import base64
from typing import Any

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError


def as_json(dead_letter: DeadLetterRecord) -> dict[str, Any]:
    """A dead letter as values that JSON can hold."""
    fields: dict[str, Any] = {
        "id": dead_letter.id,
        "topic": dead_letter.topic,
        "group": dead_letter.group,
        "tag": dead_letter.tag,
        "keys": list(dead_letter.keys),
        "headers": dead_letter.headers,
        "born_ms": dead_letter.born_ms,
        "attempt": dead_letter.attempt,
        "cause": dead_letter.cause,
        "error": dead_letter.error,
        "fingerprint": dead_letter.fingerprint,
        "dead_since_ms": dead_letter.dead_since_ms,
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
            for error in dead_letter.errors
        ],
    }
    if isinstance(dead_letter.body, bytes) or (
        dead_letter.body is None and not _readable(dead_letter.raw)
    ):
        data = dead_letter.body if isinstance(dead_letter.body, bytes) else dead_letter.raw
        return fields | {"body_base64": base64.b64encode(data).decode()}
    return fields | {"body": dead_letter.body}


def _readable(raw: bytes) -> bool:
    try:
        decode(raw)
    except CodecError:
        return False
    return True
