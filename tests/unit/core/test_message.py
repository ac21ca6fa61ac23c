"""What publish takes."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from rqretry.core.errors import InvalidArgument
from rqretry.core.limits import check_options
from rqretry.core.message import OutgoingMessage, PublishOptions, durable, outgoing


def test_an_outgoing_message_has_a_body_and_every_option_of_publish() -> None:
    options = get_type_hints(PublishOptions)
    message = get_type_hints(OutgoingMessage)

    assert {"body": Any, **options} == message
    assert [field.name for field in fields(OutgoingMessage)] == ["body", *options]


def test_a_body_alone_is_published_as_it_is_and_with_options_as_a_message() -> None:
    body = {"a": 1}

    assert outgoing(body, {}) is body
    assert outgoing(body, {"tag": "web"}) == OutgoingMessage(body=body, tag="web")


def test_a_message_brings_its_own_options() -> None:
    message = OutgoingMessage(body=1, tag="web")

    assert outgoing(message, {"tag": None, "keys": ()}) is message
    with pytest.raises(InvalidArgument, match="'tag' belongs into the OutgoingMessage"):
        outgoing(message, {"tag": "shop"})


def test_an_option_that_publish_does_not_have_is_refused_with_those_it_has() -> None:
    wrong: Any = {"dealy": "10s"}

    with pytest.raises(InvalidArgument, match="publish option 'dealy' is not one of delay, "):
        check_options(wrong, PublishOptions, "publish option")
    with pytest.raises(InvalidArgument, match="publish option 'dealy' is not one of delay, "):
        outgoing(1, wrong)


def test_a_durability_of_many_is_checked_even_where_none_needs_it() -> None:
    with pytest.raises(InvalidArgument, match="durability ''"):
        durable([OutgoingMessage(body=1, durability="disk")], "")
    with pytest.raises(InvalidArgument, match="durability ''"):
        durable([], "")


def test_an_empty_durability_of_a_message_is_not_filled_in() -> None:
    given = [OutgoingMessage(body=1, durability=""), OutgoingMessage(body=2), 3]
    kept = [message.durability for message in durable(given, "disk")]
    assert kept == ["", "disk", "disk"]  # the first is refused where it is encoded
