"""Failure records: fingerprints, and the lines that a message keeps of its attempts."""

import json
from typing import Any

import pytest

from rqretry.core.failure_record import (
    MAX_MESSAGE_BYTES,
    AttemptError,
    describe_cause,
    describe_exception,
    fingerprint_of,
    fingerprint_of_text,
    formatted,
    read_record,
    template_of,
)


def raised(what: Any) -> BaseException:
    """The exception that a call raises."""
    try:
        what()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def fail_with(text: str) -> None:
    raise ValueError(text)


def fail_elsewhere() -> None:
    raise ValueError("x")


def test_a_fingerprint_is_the_type_and_the_way_it_came_and_not_its_text() -> None:
    one, two = raised(lambda: fail_with("1")), raised(lambda: fail_with("2"))

    assert fingerprint_of(one) != fingerprint_of(raised(fail_elsewhere))
    same = [fingerprint_of(raised(lambda text=text: fail_with(text))) for text in ("1", "2")]
    assert len(set(same)) == 1
    assert len(fingerprint_of(two)) == 16


def test_another_type_from_the_same_place_is_another_fingerprint() -> None:
    def fail(kind: type[Exception]) -> None:
        raise kind

    kinds = (ValueError, KeyError)
    assert len({fingerprint_of(raised(lambda kind=kind: fail(kind))) for kind in kinds}) == 2


def test_an_exception_class_without_a_module_has_a_fingerprint() -> None:
    nowhere = type("Nowhere", (Exception,), {"__module__": None})
    found = fingerprint_of(nowhere("of no module"))
    assert found == fingerprint_of(nowhere("again")) != fingerprint_of(Exception("of no module"))


def test_very_deep_recursion_still_has_a_fingerprint_and_a_bounded_traceback() -> None:
    def dive(depth: int) -> None:
        if not depth:
            raise ValueError("x" * 100_000)
        dive(depth - 1)

    error = raised(lambda: dive(500))

    assert len(fingerprint_of(error)) == 16
    assert len(formatted(error)) < 20_000


def test_reasons_given_as_text_have_fingerprints_too() -> None:
    assert fingerprint_of_text("failure", "a") == fingerprint_of_text("failure", "a")
    assert fingerprint_of_text("failure", "a") != fingerprint_of_text("failure", "b")
    assert fingerprint_of_text("failure", "a") != fingerprint_of_text("timeout", "a")
    assert len(fingerprint_of_text("failure", "\ud800")) == 16


KINDS = [
    ("card of 17 declined", "card of # declined"),
    ("order ord_8fK2x9 not found", "order # not found"),
    ("f47ac10b-58cc-4372-a567-0e02b2c3d479 is gone", "# is gone"),
    ("no session deadbeefcafe", "no session #"),
    ("db-1.eu.example.com:5432 timed out after 3.2 s", "# timed out after # s"),
    ("host api.payments.example.com refused", "host # refused"),
    ("mail to ann@example.org bounced at 2026-11-22T10:00:01Z", "mail to # bounced at #"),
    ("https://example.org/a?b=1 answers 503", "# answers #"),
    ("can't open the file, won't retry", "can't open the file, won't retry"),
    ("key 'a b' is missing in \"orders\"", "key # is missing in #"),
    ("seats [1, 2, 3] are taken", "seats [#] are taken"),
    ("GET /orders/17/lines failed", "GET /orders/#/lines failed"),
    ("no such order", "no such order"),
]


@pytest.mark.parametrize(("reason", "kind"), KINDS)
def test_a_reason_is_of_one_kind_whatever_its_values_are(reason: str, kind: str) -> None:
    assert template_of(reason) == kind
    assert fingerprint_of_text("failure", reason) == fingerprint_of_text("failure", kind)


def test_reasons_of_one_template_have_one_fingerprint() -> None:
    texts = [f"card of {n} declined" for n in range(28_571)]
    assert len({fingerprint_of_text("rejected", text) for text in texts}) == 1
    kinds = ["card declined", "card of {} is stolen", "no card of {}", "card of {} declined twice"]
    assert len({fingerprint_of_text("rejected", kind.format(1)) for kind in kinds}) == len(kinds)


def test_a_line_of_an_exception_can_be_read_back() -> None:
    line = describe_exception(raised(lambda: fail_with("no seat")), "f" * 16, "w1", 1.23456)

    (error,) = read_record(f"3 1790000000123 {line}\n")

    assert error == AttemptError(
        3, 1790000000123, "failure", "ValueError", "no seat", "f" * 16, "w1", 1.235
    )


def test_a_line_of_a_cause_can_be_read_back() -> None:
    (error,) = read_record(f"1 5 {describe_cause('timeout', 'too long', 'w1', 2.0)}")

    assert (error.cause, error.type, error.message) == ("timeout", "", "too long")
    assert error.fingerprint == fingerprint_of_text("timeout", "too long")


@pytest.mark.parametrize("text", ["x" * 1000, "é" * 500, "a\nb\r\n\u2028", "\ud800", "\x00"])
def test_a_message_is_one_line_of_at_most_256_bytes(text: str) -> None:
    line = describe_cause("failure", text)

    assert "\n" not in line
    assert len(json.loads(line)["m"].encode(errors="replace")) <= MAX_MESSAGE_BYTES
    line.encode()
    (error,) = read_record(f"1 5 {line}")
    assert error.message


def test_an_exception_whose_text_cannot_be_made_is_described() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    line = describe_exception(Rude(), "f", "w", 0.0)

    assert json.loads(line)["t"].endswith("Rude")


@pytest.mark.parametrize(
    "record",
    ["", "nonsense", "1 2", "x 2 {}", "1 y {}", "1 2 {", "1 2 []", '1 2 {"d":"x"}', "\n\n"],
)
def test_a_damaged_line_is_skipped(record: str) -> None:
    good = '2 7 {"c":"failure","m":"kept"}'

    errors = read_record(f"{record}\n{good}\n")

    assert [error.message for error in errors] == ["kept"]


def test_what_the_scripts_write_themselves_is_understood() -> None:
    errors = read_record('1 5 {"c":"expired"}\n0 9 {"c":"redriven"}\n2 1.7e3 {"c":"expired"}\n')

    assert [(error.attempt, error.cause) for error in errors] == [
        (1, "expired"),
        (0, "redriven"),
        (2, "expired"),
    ]
    assert errors[0].fingerprint == errors[2].fingerprint != errors[1].fingerprint
