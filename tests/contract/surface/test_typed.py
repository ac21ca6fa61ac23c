"""Typed bodies: checked for handlers, refused by declared topics, dead-lettered when they lie."""

import re
import types
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ForwardRef
from uuid import UUID

import msgspec
import pydantic
import pytest

import rqretry.core.typed_body
from rqretry import App, CodecError, ConfigError, Message, OutgoingMessage, Topic
from rqretry.consumer.handler_binding import bind
from rqretry.core.typed_body import BodyMismatch, fitting
from tests.contract.integration.harness import Lab, counted
from tests.contract.surface.harness import only_dead_letter, working
from tests.contract.surface.models import Bag, Cabin, Flight, Guest, Seat, Unknown, returned

NOW = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
FLIGHT = Flight(1, "UA", NOW, [Cabin.FIRST])
BAG = Bag(Decimal("23.5"), UUID("12345678-1234-5678-1234-567812345678"))
GUEST = Guest(name="Ada", born=NOW)
SEAT = Seat(row=1, dead_letter="A")


async def takes_message(message: Message[Flight]) -> Any:
    return message.body


def takes_body(flight: Flight) -> Any:
    return flight


def takes_both(flight: Flight, message: Message[Any]) -> Any:
    assert message.body is flight
    return flight


async def takes_both_turned(message: Message[Flight], flight: Flight) -> Any:
    assert message.body is flight
    return flight


async def takes_untyped_message_too(anything, flight: Flight, retries: int = 3) -> Any:  # type: ignore[no-untyped-def]
    assert anything.body is flight
    assert retries == 3
    return flight


@pytest.mark.parametrize(
    "handler",
    [takes_message, takes_body, takes_both, takes_both_turned, takes_untyped_message_too],
)
async def test_a_body_comes_as_the_annotation_says(lab: Lab, handler: Callable[..., Any]) -> None:
    app, bodies = lab.app(), []

    async def keeping(*args: Any) -> None:
        value = handler(*args)
        bodies.append(await value if hasattr(value, "__await__") else value)

    keeping.__wrapped__ = handler  # type: ignore[attr-defined]
    app.consumer("t", group="g")(keeping)
    async with working(app):
        await app.publish("t", FLIGHT)
        await counted(lab, "g", succeed=1, fail=0)
    assert bodies == [FLIGHT]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (FLIGHT, Flight),
        (SEAT, Seat),
        (BAG, Bag),
        (GUEST, Guest),
        ([FLIGHT, FLIGHT], list[Flight]),
        ({"a": GUEST}, dict[str, Guest]),
        (b"\x00\xff", bytes),
        ({"row": 1}, dict[str, Any]),
    ],
)
async def test_a_declared_topic_carries_its_body_type(lab: Lab, body: Any, kind: Any) -> None:
    app, bodies = lab.app(), []
    topic = app.topic("x", body=kind)

    @topic.consumer(group="g")
    def handle(message: Message[Any]) -> None: ...

    @topic.consumer(group="h")
    def keep(message: Message[Any]) -> None:
        bodies.append(message.body)

    async with working(app):
        await topic.publish(body)
        await topic.publish_many([body, OutgoingMessage(body=body)])
        await counted(lab, "h", succeed=3, fail=0)
    assert bodies == [body] * 3


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Flight, {"number": "one", "carrier": "UA"}),
        (Flight, {"number": 1}),
        (Flight, b"raw"),
        (Seat, {"row": 1}),
        (Bag, FLIGHT),
        (Guest, {"name": "A", "born": "2024-02-29T12:30:00Z"}),
        (list[Flight], FLIGHT),
        (dict, [1]),
    ],
)
async def test_a_declared_topic_refuses_a_body_that_does_not_fit(
    lab: Lab, kind: Any, body: Any
) -> None:
    app = lab.app()
    topic = app.topic("x", body=kind)

    with pytest.raises(BodyMismatch, match=f"is not a valid .*{getattr(kind, '__name__', '')}"):
        await topic.publish(body)
    with pytest.raises(BodyMismatch):
        await topic.publish(OutgoingMessage(body=body))
    with pytest.raises(BodyMismatch):
        await topic.publish_many([OutgoingMessage(body=body)])
    with pytest.raises(BodyMismatch):
        topic.publish_sync(body)
    with pytest.raises(BodyMismatch):
        topic.publish_many_sync([body])
    assert await app.admin.topics() == []


async def test_a_topic_takes_the_values_that_stand_for_its_type_too(lab: Lab) -> None:
    app = lab.app()
    topic: Topic[Any] = app.topic("x", body=Flight, partitions=3)

    id_ = await topic.publish({"number": 1, "carrier": "UA"}, tag="t", keys="k", id="a")

    message = await app.admin.message(id_)
    assert (message.body, message.tag, message.keys) == (
        {"number": 1, "carrier": "UA"},
        "t",
        ("k",),
    )
    (found,) = await app.admin.topics()
    assert (found.name, found.partitions) == ("x", 3)


async def test_a_received_body_that_does_not_fit_is_dead_lettered_with_the_reason(lab: Lab) -> None:
    app, called = lab.app(), []

    @app.consumer("t", group="g")
    def handle(flight: Flight) -> None:
        called.append(flight)

    async with working(app):
        await app.publish("t", {"number": "x", "carrier": "UA"})
        dead_letter = await only_dead_letter(lab, app, "g")

    assert (dead_letter.cause, dead_letter.attempt, called) == ("mismatch", 1, [])
    expected = "the body is not a valid Flight: Expected `int`, got `str` - at `$.number`"
    assert dead_letter.error == expected
    assert dead_letter.body == {"number": "x", "carrier": "UA"}


def test_typed_objects_are_published_by_sync_clients_as_well(lab: Lab) -> None:
    client = lab.client()
    first = client.publish("t", GUEST)
    second, third = client.publish_many("t", [BAG, OutgoingMessage(body=FLIGHT, tag="t")])

    assert client.admin.message(first).body == {"name": "Ada", "born": "2024-02-29T12:30:00Z"}
    assert client.admin.message(second).body["kilos"] == "23.5"
    assert client.admin.message(third).body["cabins"] == ["F"]


def test_a_typed_object_without_a_json_form_is_refused(lab: Lab) -> None:
    with pytest.raises(CodecError, match="no JSON form"):
        lab.client().publish("t", Flight(returned(Unknown()), "UA"))


# -- signatures ------------------------------------------------------------------------------------


def refused(handler: Callable[..., Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        bind(handler)
    return str(caught.value)


def test_handlers_that_one_message_cannot_call_are_refused() -> None:
    def two(a: Flight, b: Seat) -> None: ...
    def differing(a: Message[Flight], b: Seat) -> None: ...
    def twice(a: Message[Any], b: Message[Any]) -> None: ...
    def named(*, message: Message[Any]) -> None: ...
    def nothing() -> None: ...

    for handler in (two, differing, twice, named, nothing):
        assert "cannot be called with one message" in refused(handler)


def test_an_annotation_that_means_nothing_is_refused_and_not_ignored() -> None:
    def handle(flight: "Fligth") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert re.search(r"parameter flight of .*'Fligth' cannot be resolved", refused(handle))
    assert "'Unknown' of the body cannot be checked" in refused(lambda_of(Unknown))


class Unfinished(pydantic.BaseModel):
    """Names a class that its module does not have."""

    seat: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Trip(pydantic.BaseModel):
    """Names a class that its module defines further down."""

    leg: "Leg"


@pytest.mark.parametrize("body", ["Nope", "a:b", "", ForwardRef("Nope"), list["Nope"], 7])  # type: ignore[name-defined]  # noqa: F821
def test_a_body_type_that_is_not_known_is_refused_where_it_is_declared(body: Any) -> None:
    with pytest.raises(ConfigError, match=r"the type .* of the body (is a name|cannot be checked)"):
        App().topic("t", body=body)


@pytest.mark.parametrize("body", [Unfinished, list[Unfinished]])
def test_a_model_that_is_not_finished_when_it_is_needed_is_an_error_of_ours(body: Any) -> None:
    topic = App().topic("t", body=body)
    with pytest.raises(ConfigError, match=r"Unfinished.* not fully defined.*define"):
        topic.checked({"seat": 1} if body is Unfinished else [{"seat": 1}])


def test_a_model_may_name_a_class_that_follows() -> None:
    topic: Topic[Any] = App().topic("t", body=returned(Trip))
    assert topic.checked({"leg": {"miles": 7}}) == {"leg": {"miles": 7}}


class Leg(pydantic.BaseModel):
    """What Trip names."""

    miles: int


def lambda_of(kind: Any) -> Callable[..., Any]:
    def handle(body: Any) -> None: ...

    handle.__annotations__["body"] = kind
    return handle


def test_names_imported_for_the_type_checker_alone_are_understood() -> None:
    def written(message: Any) -> None: ...

    handle = types.FunctionType(written.__code__, {}, "handle")  # a module that imports neither
    handle.__annotations__ = {"message": "Message[Any]", "return": "ConsumeResult"}
    assert bind(handle).simple


def test_defaults_wrappers_and_constraints_are_understood() -> None:
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert bind(wrapper).simple
    assert bind(lambda message, seen=(): None).simple
    assert bind(lambda message=None: None).simple
    binding = bind(lambda_of(Annotated[int, msgspec.Meta(ge=0)]))
    assert binding.fit is not None
    with pytest.raises(BodyMismatch, match=">= 0"):
        binding.fit(-1)


# -- without the extras ----------------------------------------------------------------------------


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = rqretry.core.typed_body._optional
    monkeypatch.setattr(
        rqretry.core.typed_body, "_optional", lambda name: None if name in names else real(name)
    )


def test_without_msgspec_and_pydantic_a_type_that_needs_them_names_the_extra(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "msgspec", "pydantic", "pydantic_core")
    app = lab.app()

    with pytest.raises(ConfigError, match=r"install rqretry\[typed\], or pydantic"):
        app.topic("x", body=Flight)
    with pytest.raises(ConfigError, match=r"install rqretry\[typed\], or pydantic"):
        app.consumer("x", group="g")(takes_body)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (str, "a", 1),
        (float, 1, "1"),
        (int | None, None, "1"),
        (dict[str, str], {"a": "b"}, {"a": 1}),
        (list[int], [1, 2], [1, "2"]),
        (dict[str, Any], {"a": [1]}, [1]),
        (dict[str, list[int | str]], {"a": [1, "b"]}, {"a": [None]}),
    ],
)
@pytest.mark.parametrize("missing", [(), ("msgspec",), ("msgspec", "pydantic")])
def test_what_json_values_are_by_themselves_is_checked_with_and_without_the_extras(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], kind: Any, good: Any, bad: Any
) -> None:
    without(monkeypatch, *missing)
    fit = fitting(kind)
    assert fit is not None
    assert fit(good) == good
    with pytest.raises(BodyMismatch, match="the body is no"):
        fit(bad)


async def test_pydantic_alone_checks_dataclasses_and_models(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "msgspec")
    app, bodies = lab.app(), []

    @app.topic("x", body=Flight).consumer(group="g")
    def handle(flight: Flight) -> None:
        bodies.append(flight)

    async with working(app):
        await app.publish("x", FLIGHT)
        await counted(lab, "g", succeed=1)
        await app.publish("x", {"number": 1})
        await counted(lab, "g", dead=1)
        (dead_letter,) = await app.admin.dead_letters("g")
    assert bodies == [FLIGHT]
    assert dead_letter.error == "the body is not a valid Flight: Field required - at carrier"
