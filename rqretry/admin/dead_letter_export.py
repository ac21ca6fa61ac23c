"""A dead letter as JSON."""

import base64
from typing import Any

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError

_FIELDS = (
    "id", "topic", "group", "tag", "keys", "headers", "born_ms", "attempt", "cause", "error",
    "fingerprint", "dead_since_ms",
)  # fmt: skip
_ERROR_FIELDS = ("attempt", "at_ms", "cause", "type", "message", "fingerprint", "worker")


def as_json(dead_letter: DeadLetterRecord) -> dict[str, Any]:
    """A dead letter as values that JSON can hold."""
    fields = {name: getattr(dead_letter, name) for name in _FIELDS}
    fields["keys"] = list(dead_letter.keys)
    fields["errors"] = [
        {name: getattr(error, name) for name in _ERROR_FIELDS} for error in dead_letter.errors
    ]
    body = dead_letter.body
    if body is None and not _readable(dead_letter.raw):
        body = dead_letter.raw
    if isinstance(body, bytes):
        return fields | {"body_base64": base64.b64encode(body).decode()}
    return fields | {"body": body}


def _readable(raw: bytes) -> bool:
    try:
        decode(raw)
    except CodecError:
        return False
    return True
