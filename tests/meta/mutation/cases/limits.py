"""Limits."""

import re
from typing import Any

from tests.meta.mutation.case import Constant, Symbol
from tests.meta.mutation.cases.common import LIMITS, case, limit, refuses, takes

NAMES = f"{LIMITS}test_names_at_their_limits"
OPTIONS = f"{LIMITS}test_options_of_a_message_at_their_limits"
BODY = f"{LIMITS}test_a_body_of_4_mib_is_stored_and_one_byte_more_is_not[raw]"
BULK = f"{LIMITS}test_publish_many_takes_any_number_in_bounded_calls"


def visible(value: str) -> str:
    """Without control characters and blanks."""
    return re.sub(r"[\x00-\x20\x7f]", "_", value)


def without_bytes(original: Any) -> Any:
    """A message group is measured in characters."""

    def check(value: str) -> str:
        original("g" * len(value))
        return value

    return check


def topic_first(original: Any) -> Any:
    """The topic is made before its message is checked."""

    def prepare(self: Any, topic: str, *rest: Any, **named: Any) -> Any:
        yield from self.catalog.topics.get(topic, create=True)
        return (yield from original(self, topic, *rest, **named))

    return prepare


CASES = (
    case("7.1", "a body may have one byte more",
         limit("MAX_BODY_BYTES", "4 * 1024 * 1024 + 1"), BODY),
    case("7.1", "a body of 4 MiB is refused", limit("MAX_BODY_BYTES", "4 * 1024 * 1024 - 1"), BODY),
    case("7.2", "129 headers are allowed", limit("MAX_HEADERS", "129"), f"{OPTIONS}[headers]"),
    case("7.2", "headers may have one byte more", limit("MAX_HEADERS_BYTES", "16 * 1024 + 1"),
         f"{OPTIONS}[headers together]"),
    case("7.2", "a header name may have one character more", limit("MAX_HEADER_NAME", "129"),
         f"{OPTIONS}[header name]"),
    case("7.2", "the topic is made before its message is checked",
         Symbol("Encoder.prepare", topic_first), f"{OPTIONS}[headers]"),
    case("7.3", "a topic may have 128 characters", limit("MAX_TOPIC", "128"), NAMES),
    case("7.3", "a group may have 121 characters", limit("MAX_GROUP", "121"), NAMES),
    case("7.3", "a name may begin with a dot",
         takes("check_topic", lambda name: name.replace(".", "-")), NAMES),
    case("7.3", "a name may hold no dot", refuses("check_topic", "."), NAMES),
    case("7.3", "a name may hold no hyphen", refuses("check_topic", "-"), NAMES),
    case("7.4", "a message group may have 64 bytes", limit("MAX_MESSAGE_GROUP_BYTES", "64"),
         f"{OPTIONS}[message group]"),
    case("7.4", "a message group is measured in characters",
         Symbol("core:check_message_group", without_bytes), f"{OPTIONS}[message group]"),
    case("7.5", "a tag may hold a bar", takes("check_tag", lambda tag: tag.replace("|", "_")),
         f"{OPTIONS}[tag]"),
    case("7.5", "a key may hold a blank",
         takes("check_keys", lambda keys: visible(keys) if isinstance(keys, str) else keys),
         f"{OPTIONS}[blanks of a key]"),
    case("7.5", "a message group may hold a control character",
         takes("check_message_group", visible), f"{OPTIONS}[blanks of a message group]"),
    case("7.6", "a key may have 129 characters", limit("MAX_KEY", "129"), f"{OPTIONS}[key]"),
    case("7.6", "17 keys are allowed", limit("MAX_KEYS", "17"), f"{OPTIONS}[keys]"),
    case("7.7", "a message id may have 129 characters", limit("MAX_MESSAGE_ID", "129"),
         f"{OPTIONS}[message id]"),
    case("7.7", "a message id may hold a slash",
         takes("check_message_id", lambda id_: id_.replace("/", "_")), f"{OPTIONS}[message id]"),
    case("7.8", "a namespace may have 64 characters", limit("MAX_NAMESPACE", "64"), NAMES),
    case("7.9", "a delay may be one second longer", limit("MAX_DELAY_S", "40 * 86_400 + 1"),
         f"{OPTIONS}[delay]"),
    case("7.10", "a call has 501 messages", Constant("producer:FULL_CALL", "501"), BULK),
    case("7.10", "a call has more than 1 MiB", limit("MAX_CALL_BYTES", "2 * 1024 * 1024"), BULK),
)  # fmt: skip
