"""Every limit of what users name and publish, and the checks made before any write.

A check returns the value as it will be stored, or raises InvalidArgument with the name
of the argument, the value at fault and what is allowed. A good value costs one cheap
test; only a bad one pays for finding out what is wrong with it.
"""

import inspect
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NoReturn, cast

from rqretry.core.errors import refuse, show
from rqretry.core.route import UNORDERED
from rqretry.core.suggestion import did_you_mean

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_BODY_DEPTH = 64
MAX_BODY_ITEMS = 100_000
MAX_HEADERS = 128
MAX_HEADERS_BYTES = 16 * 1024
MAX_HEADER_NAME = 128
MAX_TOPIC = 127
MAX_GROUP = 120
MAX_NAMESPACE = 63
MAX_MESSAGE_ID = 128
MAX_MESSAGE_GROUP_BYTES = 63
MAX_TAG = 128
MAX_TAGS = 64
MAX_KEY = 128
MAX_KEYS = 16
MAX_PARTITIONS = 1024
MAX_DELAY_S = 40 * 86_400
MAX_DELAY_MS = MAX_DELAY_S * 1000
MAX_RETRIES = 1_000_000
DEFAULT_MAX_RETRIES = 16
UNLIMITED = -1
DLQ = "%DLQ%"
"""The prefix that makes a topic of a group: other groups consume its dead letters there."""
MAX_TRANSACTION_MESSAGES = 8000
"""Their due times differ by 1/1024 ms, and all lie within the 8 ms before the decision."""
MAX_CALL_BYTES = 1024 * 1024
MAX_RECEIVE = 32
MAX_POSTPONES = 1000
MIN_INVISIBLE_S = 0.01
MAX_INVISIBLE_S = 12 * 3600

_DIGITS = 16
_NAMESPACE_CHARACTERS = "A-Z a-z 0-9 _ -"
_NAME_CHARACTERS = "A-Z a-z 0-9 _ . -, the first no dot"
_ID_CHARACTERS = "A-Z a-z 0-9 _ . : -"
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_ID = re.compile(r"[A-Za-z0-9_.:-]+")
_ID_BYTES = bytes(byte for byte in range(128) if _ID.fullmatch(chr(byte)))


def check_topic(value: object) -> str:
    """A topic: 1 to 127 characters of A-Z a-z 0-9 _ . -, the first no dot."""
    return check_name("topic", value, MAX_TOPIC)


def check_source(value: object) -> str:
    """What a consumer subscribes to: a topic, or "%DLQ%" and a group for its dead letters."""
    if isinstance(value, str) and value.startswith(DLQ):
        return DLQ + check_group(value.removeprefix(DLQ))
    return check_topic(value)


def check_sources(value: object) -> list[str]:
    """What a consumer subscribes to, one or several."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, bytes) or not isinstance(names, Iterable) or not (listed := [*names]):
        refuse("topics", value, "must be a topic, or a list with one at least")
    return [check_source(name) for name in listed]


def check_group(value: object) -> str:
    """A consumer group: 1 to 120 characters of A-Z a-z 0-9 _ . -, the first no dot."""
    return check_name("group", value, MAX_GROUP)


def check_namespace(value: object) -> str:
    """A namespace: 1 to 63 characters of A-Z a-z 0-9 _ -."""
    if not isinstance(value, str) or not _fits(value, MAX_NAMESPACE, _NAMESPACE):
        _refuse_name("namespace", value, MAX_NAMESPACE, _NAMESPACE, _NAMESPACE_CHARACTERS)
    return _plain(value)


def check_message_id(value: object, *, name: str = "message id") -> str:
    """A message id, or a transaction's: 1 to 128 characters of A-Z a-z 0-9 _ . : -."""
    if not isinstance(value, str) or not _fits(value, MAX_MESSAGE_ID, _ID):
        _refuse_name(name, value, MAX_MESSAGE_ID, _ID, _ID_CHARACTERS)
    return _plain(value)


def are_message_ids(values: Sequence[object]) -> bool:
    """Whether `check_message_id` takes all of these as they are; faster for many."""
    if not {str}.issuperset(map(type, values)):
        return False
    texts = cast("Sequence[str]", values)
    if "" in texts or max(map(len, texts), default=0) > MAX_MESSAGE_ID:
        return False
    return not "".join(texts).encode(errors="replace").translate(None, _ID_BYTES)


def check_tag(value: object) -> str:
    """A tag: 1 to 128 visible characters without a blank and without "|"."""
    tag = _check_visible("tag", value, MAX_TAG)
    if "|" in tag:
        refuse("tag", tag, 'must not hold "|", which separates tags in a subscription')
    return tag


def check_tags(value: object) -> str:
    """What a subscription takes: "*", or 1 to 64 tags such as "a || b"; answers it in order."""
    if not isinstance(value, str):
        refuse("tags", value, 'must be a str such as "a || b", or "*" for every message')
    if value.strip() == "*":
        return "*"
    parts = [part.strip() for part in value.split("||")]
    if "" in parts:
        refuse("tags", value, 'must be tags with "||" between them, such as "a || b", or "*"')
    if "*" in parts:
        refuse("tags", value, 'names "*" among others: "*" alone takes every message')
    tags = sorted({_check_tag_of(value, part) for part in parts})
    if len(tags) > MAX_TAGS:
        refuse("tags", value, f"are {len(tags)}; at most {MAX_TAGS} are allowed")
    return " || ".join(tags)


def _check_tag_of(tags: str, part: str) -> str:
    if "|" in part or any(character.isspace() for character in part):
        refuse("tags", tags, 'must be tags with "||" between them, such as "a || b", or "*"')
    return check_tag(part)


def check_keys(value: object) -> tuple[str, ...]:
    """Message keys: one key, or at most 16; each 1 to 128 visible characters."""
    if isinstance(value, str):
        return (_check_visible("key", value, MAX_KEY),)
    if isinstance(value, bytes | bytearray) or not isinstance(value, Sequence):
        refuse("keys", value, "must be a str or a sequence of str")
    if len(value) > MAX_KEYS:
        refuse("keys", value, f"are {len(value)}; at most {MAX_KEYS} are allowed")
    return tuple(_check_visible("key", key, MAX_KEY) for key in value)


def check_headers(value: object) -> dict[str, str]:
    """Headers: at most 128, str to str, names of 1 to 128, together at most 16 KiB."""
    if not isinstance(value, Mapping):
        refuse("headers", value, "must be a mapping of str to str")
    if len(value) > MAX_HEADERS:
        refuse("headers", value, f"are {len(value)}; at most {MAX_HEADERS} are allowed")
    headers: dict[str, str] = {}
    total = 0
    for name, text in value.items():
        checked = _check_header_name(name)
        if not isinstance(text, str):
            rule = f"is {type(text).__name__}, not str: convert it, as in str(value)"
            refuse(f"the value of header {show(checked)}", text, rule)
        total += _bytes_in(f"header name {show(checked)}", checked)
        total += _bytes_in(f"the value of header {show(checked)}", text)
        headers[checked] = _plain(text)
    if total > MAX_HEADERS_BYTES:
        rule = f"take {total} bytes; at most {MAX_HEADERS_BYTES} are allowed together"
        refuse("headers", value, f"{rule}: put large data into the body")
    return headers


def check_message_group(value: object) -> str:
    """A message group (FIFO key): 1 to 63 bytes of visible characters."""
    group = _check_visible("message_group", value, MAX_MESSAGE_GROUP_BYTES)
    size = len(group.encode())
    if size > MAX_MESSAGE_GROUP_BYTES:
        rule = f"takes {size} bytes; at most {MAX_MESSAGE_GROUP_BYTES} are allowed"
        refuse("message_group", value, rule)
    return group


def check_partitions(value: object) -> int:
    """A number of partitions, 1 to 1024."""
    return check_count(value, name="partitions", maximum=MAX_PARTITIONS)


def check_max_retries(value: object) -> int:
    """A retry limit: 0 to 1 000 000, or "unlimited", which is returned as -1."""
    if isinstance(value, str) and value == "unlimited":
        return UNLIMITED
    rule = f'must be a whole number from 0 to {MAX_RETRIES}, or "unlimited"'
    if isinstance(value, bool) or not isinstance(value, int):
        refuse("max_retries", value, rule)
    if value == UNLIMITED:
        refuse("max_retries", value, 'is refused: use "unlimited" to retry for ever')
    if not 0 <= value <= MAX_RETRIES:
        refuse("max_retries", value, rule)
    return int(value)


class Keep(Enum):
    """For settings of which None is a value: the one that is named by leaving it out."""

    KEEP = "keep"


KEEP = Keep.KEEP


def check_max_inflight(value: object) -> int:
    """How many messages of a group may be under a lease: 1 or more; None or "none" is 0."""
    if value is None or value == "none":
        return 0
    rule = 'must be a whole number, 1 or more, or "none" for no limit'
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        refuse("max_inflight", value, rule)
    return int(value)


def check_options(options: Mapping[str, object], known: type, name: str) -> None:
    """Whether each option is one that a TypedDict names. Raises InvalidArgument."""
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        names = sorted(known.__annotations__)
        hint = did_you_mean(unknown[0], names)
        refuse(name, unknown[0], f"is not one of {', '.join(names)}{hint}")


def check_unordered(value: object) -> str:
    """What ordered groups do with messages that have no message group."""
    if value not in UNORDERED:
        refuse("unordered", value, 'must be "queue" or "parallel"')
    return str(value)


def check_function(name: str, value: object, *parameters: str) -> None:
    """A function, or an object that is called like one, that takes these; a class is none.

    Without `parameters` it may take anything.
    """
    if isinstance(value, type) or not callable(value):
        refuse(name, value, "must be a function: decorate a def or an async def")
    if not parameters:
        return
    try:
        inspect.signature(value).bind(*parameters)
    except TypeError:
        taken = inspect.signature(value)
        refuse(name, value, f"must take ({', '.join(parameters)}), and takes {taken}")
    except ValueError:  # a builtin that says nothing about its own
        return


def check_part(name: str, value: object) -> str | None:
    """Text that something is selected by; None for everything, which no empty text means."""
    if value is not None and not isinstance(value, str):
        refuse(name, value, f"is {type(value).__name__}, not str")
    if value == "":  # as of a variable of a shell that is not set
        refuse(name, value, "is empty, and would select all: say what, or remove it")
    return value


def check_flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        refuse(name, value, "must be True or False")
    return value


def check_flags(flags: Mapping[str, bool], given: Mapping[str, object]) -> None:
    """Those of these arguments that are given; each with whether it may be None."""
    for name, optional in flags.items():
        if name in given and not (optional and given[name] is None):
            check_flag(name, given[name])


def read_whole(text: str) -> int | None:
    """A whole number, 1 to 16 digits 0-9, which is all that int() ought to take; None for none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def check_count(value: object, *, name: str, minimum: int = 1, maximum: int | None = None) -> int:
    """A whole number between two limits, both allowed; None is no upper limit."""
    limits = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(name, value, f"must be a whole number, {limits}")
    if value < minimum or (maximum is not None and value > maximum):
        refuse(name, value, f"must be {limits}")
    return int(value)


def check_name(name: str, value: object, longest: int) -> str:
    """1 to `longest` characters of A-Z a-z 0-9 _ . -, the first no dot."""
    if not isinstance(value, str) or not _fits(value, longest, _NAME):
        _refuse_name(name, value, longest, _NAME, _NAME_CHARACTERS)
    return _plain(value)


def _fits(value: str, longest: int, allowed: re.Pattern[str]) -> bool:
    return len(value) <= longest and allowed.fullmatch(value) is not None


def _refuse_name(
    name: str, value: object, longest: int, allowed: re.Pattern[str], characters: str
) -> NoReturn:
    rule = f"must be 1 to {longest} characters of {characters}"
    if not isinstance(value, str):
        refuse(name, value, f"is {type(value).__name__}, not str: it {rule}")
    good = allowed.match(value)
    position = good.end() if good else 0
    if position < len(value):
        refuse(name, value, f"holds {_named(value, position)}: it {rule}")
    refuse(name, value, f"has {len(value)} characters: it {rule}")


def _check_visible(name: str, value: object, longest: int) -> str:
    """Any script, but nothing a reader cannot see or a terminal would act upon."""
    rule = f"must be 1 to {longest} characters without blanks or control characters"
    if not isinstance(value, str):
        refuse(name, value, f"is {type(value).__name__}, not str: it {rule}")
    if not 0 < len(value) <= longest:
        refuse(name, value, f"has {len(value)} characters: it {rule}")
    if not value.isprintable() or " " in value:
        position = next(i for i, c in enumerate(value) if not _is_visible(c))
        refuse(name, value, f"holds {_named(value, position)}: it {rule}")
    return _plain(value)


def _check_header_name(name: object) -> str:
    if not isinstance(name, str):
        refuse("header name", name, f"is {type(name).__name__}, not str")
    return _check_visible("header name", name, MAX_HEADER_NAME)


def _bytes_in(name: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        refuse(name, text, "holds half of a surrogate pair, which no UTF-8 text can")


def _is_visible(character: str) -> bool:
    return character.isprintable() and character != " "


def _named(text: str, position: int) -> str:
    """One character with its code point, its name and its position from 0."""
    character = text[position]
    name = unicodedata.name(character, "")
    spelled = f"U+{ord(character):04X} {name}".rstrip()
    return f"{show(character)} ({spelled}) at position {position}"


def _plain(value: str) -> str:
    """Exactly str: an f-string spells a member of a str Enum by the member's name."""
    return value if type(value) is str else "".join(value)
