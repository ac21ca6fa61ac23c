"""What comes with a request, checked before anything is asked of Redis."""

import re
from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.requests import Request

from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.core.errors import refuse
from rqretry.core.limits import check_group, check_message_id

MAX_FORM_BYTES = 8192
MOST_PAGES = 10_000
MOST_TEXT = 128
_FIELDS = 64
MANY = "id"
"""The one field that may come more than once, where it may come: its values with blanks between."""
_FINGERPRINT = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
_PAGE = re.compile(r"[1-9][0-9]{0,4}")


def asked(request: Request, *allowed: str) -> dict[str, str]:
    """The query's fields. Raises InvalidArgument for unknown ones and for one that comes twice."""
    return _once(request.query_params.multi_items(), allowed)


async def posted(request: Request, *allowed: str) -> dict[str, str]:
    """The form's fields. Raises InvalidArgument as `asked`, and where it is not a small form."""
    text = b""
    async for chunk in request.stream():
        text += chunk
        if len(text) > MAX_FORM_BYTES:
            refuse("form", f"{len(text)} bytes", f"must be {MAX_FORM_BYTES} bytes at most")
    try:
        pairs = parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        refuse("form", text, "is not a form")
    return _once(pairs, allowed)


def group_of(request: Request) -> str:
    """The group in the path. Raises InvalidArgument."""
    return check_group(request.path_params["group"])


def id_of(request: Request) -> str:
    """The message id in the path or the query. Raises InvalidArgument."""
    if "id" in request.path_params:
        asked(request)
        return check_message_id(request.path_params["id"])
    return check_message_id(asked(request, "id").get("id", ""))


def page_of(fields: dict[str, str]) -> int:
    """The number of a page, from 1. Raises InvalidArgument."""
    text = fields.get("page", "1")
    if not _PAGE.fullmatch(text) or int(text) > MOST_PAGES:
        refuse("page", text, f"must be 1 to {MOST_PAGES}")
    return int(text)


def text_of(fields: dict[str, str], name: str) -> str:
    """A short text. Raises InvalidArgument."""
    text = fields.get(name, "").strip()
    if len(text) > MOST_TEXT or not text.isprintable():
        refuse(name, text, f"must be at most {MOST_TEXT} printable characters")
    return text


def word_of(fields: dict[str, str], name: str, known: Collection[str], default: str) -> str:
    """One of the known words. Raises InvalidArgument."""
    word = fields.get(name) or default
    if word != default and word not in known:
        refuse(name, word, f"is not one of {', '.join(sorted(known))}")
    return word


def fingerprint_of(fields: dict[str, str]) -> str | None:
    """The fingerprint, if one is given. Raises InvalidArgument."""
    text = fields.get("fingerprint")
    if text is not None and not _FINGERPRINT.fullmatch(text):
        refuse("fingerprint", text, "is not a fingerprint")
    return text


def choice_of(fields: dict[str, str]) -> DeadLetterFilter:
    """Which dead letters: those of a fingerprint, some by id, or all. Raises InvalidArgument."""
    fingerprint, ids = fingerprint_of(fields), fields.get(MANY)
    if ids is None and "chosen" in fields:
        refuse(MANY, "", "is missing: choose messages first")
    if ids is not None:
        return DeadLetterFilter(ids=ids.split(" "), fingerprint=fingerprint)
    return DeadLetterFilter(fingerprint=fingerprint, all=fingerprint is None)


def _once(pairs: list[tuple[str, str]], allowed: tuple[str, ...]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            refuse("field", name, "is not one of this page")
        if name in fields and name != MANY:
            refuse("field", name, "is given twice")
        fields[name] = f"{fields[name]} {value}" if name in fields else value
    return fields
