import inspect
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from rqretry.core import errors
from rqretry.core.errors import (
    AmbiguousResult,
    ConfigError,
    ForgottenResult,
    InvalidArgument,
    NotConfirmed,
    PublishError,
    RqretryError,
    ScriptError,
    end_at_caller,
    refuse,
    show,
)

HAVE_FIELDS = (AmbiguousResult, ForgottenResult, NotConfirmed, PublishError, ScriptError)
PLAIN = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, RqretryError) and kind not in HAVE_FIELDS
]
WITH_FIELDS = [
    AmbiguousResult("publish", ["a", "b"], "the connection was closed"),
    ForgottenResult("publish", ["a"], "the connection was closed"),
    PublishError(["a"], ["b", "c"], ["d"], "no room"),
    ScriptError("lua/fail.lua", 31, "attempt to index a nil value"),
    NotConfirmed(["a"], "replica:1", "0 of 1 replicas had it"),
]


@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_keeps_its_sentence_through_pickle(kind: Any) -> None:
    copy = pickle.loads(pickle.dumps(kind("one sentence")))
    assert type(copy) is kind
    assert str(copy) == "one sentence"


@pytest.mark.parametrize("error", WITH_FIELDS)
def test_an_error_with_fields_keeps_them_through_pickle(error: Any) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("kind", [*PLAIN, *HAVE_FIELDS])
def test_every_error_says_in_one_sentence_when_it_is_raised(kind: Any) -> None:
    assert kind.__doc__
    assert kind.__doc__.splitlines()[0].endswith(".")


def test_an_ambiguous_result_names_the_verb_the_id_and_what_to_do() -> None:
    error = AmbiguousResult("publish", ["m1"], "timed out")
    assert (error.id, error.ids, error.operation) == ("m1", ("m1",), "publish")
    assert str(error) == (
        "publish of message 'm1' may have happened (timed out);"
        " it is safe to repeat with the same id through this client within an hour, or through any"
        " if you chose the id"
    )
    assert "it may be handled twice" in str(ForgottenResult("publish", ["m1"], "timed out"))
    assert AmbiguousResult("lease", []).id == ""


def test_a_publish_error_counts_what_is_where() -> None:
    assert str(WITH_FIELDS[2]).startswith(
        "publish stored 1 messages, 2 failed and 1 may be stored: no room;"
    )


def test_a_script_error_names_file_and_line() -> None:
    assert str(WITH_FIELDS[3]).startswith("lua/fail.lua:31: attempt")


class BrokenRepr:
    def __repr__(self) -> Any:
        raise RuntimeError("no repr for you")


def self_containing() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        b"\x00" * 1000,
        BrokenRepr(),
        [BrokenRepr()] * 50,
        self_containing(),
        10**10_000,
        {"a": list(range(10_000))},
        "\u202egnp.exe\ud800",
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_showing_a_value_never_raises_and_gives_short_ascii(value: Any) -> None:
    text = show(value)
    assert 0 < len(text) <= 120
    assert text.isascii()
    assert text.isprintable()


def test_showing_a_value_escapes_it() -> None:
    assert show("queu\u0451\n") == r"'queu\u0451\n'"


def test_a_date_is_shown_as_iso_8601() -> None:
    assert show(datetime(9999, 12, 31, tzinfo=UTC)) == "9999-12-31T00:00:00+00:00"


def test_a_refusal_names_the_argument_the_value_and_the_rule() -> None:
    with pytest.raises(InvalidArgument, match=r"^topic 'a b' must be good$") as caught:
        refuse("topic", "a b", "must be good")
    assert isinstance(caught.value, ValueError)


def test_causes_that_go_round_in_a_circle_are_left_after_one_round() -> None:
    error, cause = ConfigError("a"), ConfigError("b")
    error.__cause__, cause.__cause__ = cause, error
    end_at_caller(error)
    assert error.__cause__ is None
