"""How dead letters are printed."""

import base64
from collections.abc import Sequence
from typing import Any

import click

from rqretry.admin.views import clusters
from rqretry.cli.confirmation import counted
from rqretry.cli.output import (
    body_fields,
    body_text,
    clean,
    date,
    print_fields,
    print_json,
    print_table,
)
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.failure_record import AttemptError


def print_clusters(group: str, letters: Sequence[DeadLetterRecord], *, as_json: bool) -> None:
    """One row for each fingerprint."""
    rows = clusters(letters)
    if as_json:
        fields = [
            {
                "fingerprint": row.fingerprint,
                "error": row.error,
                "count": row.count,
                "first": date(row.first_ms),
                "last": date(row.last_ms),
                "sample_id": row.sample_id,
            }
            for row in rows
        ]
        print_json({"group": group, "clusters": fields})
    elif rows:
        print_table(
            ["fingerprint", "#count", "first", "last", "sample", "error"],
            [
                (r.fingerprint, r.count, date(r.first_ms), date(r.last_ms), r.sample_id, r.error)
                for r in rows
            ],
        )


def print_messages(group: str, letters: Sequence[DeadLetterRecord], *, as_json: bool) -> None:
    """One row for each message."""
    if as_json:
        fields = [
            {name: getattr(letter, name) for name in ("id", "topic", "attempt", "cause", "error")}
            for letter in letters
        ]
        print_json({"group": group, "messages": fields})
    elif letters:
        print_table(
            ["id", "topic", "#attempt", "cause", "dead since", "error"],
            [(x.id, x.topic, x.attempt, x.cause, date(x.dead_since_ms), x.error) for x in letters],
        )


def letter_fields(letter: DeadLetterRecord) -> dict[str, Any]:
    """One dead letter for JSON."""
    return {
        "group": letter.group,
        "id": letter.id,
        "topic": letter.topic,
        **body_fields(letter.body),
        "raw": base64.b64encode(letter.raw).decode(),
        "tag": letter.tag,
        "keys": list(letter.keys),
        "headers": letter.headers,
        "published": date(letter.born_ms),
        "attempt": letter.attempt,
        "failures": letter.failures,
        "interruptions": letter.interruptions,
        "cause": letter.cause,
        "error": letter.error,
        "fingerprint": letter.fingerprint,
        "dead_since": date(letter.dead_since_ms),
        "errors": [_error_fields(error) for error in letter.errors],
    }


def _error_fields(error: AttemptError) -> dict[str, Any]:
    names = ("attempt", "at_ms", "cause", "type", "message", "fingerprint", "worker", "seconds")
    return {name: getattr(error, name) for name in names}


def _deliveries(letter: DeadLetterRecord) -> str:
    """How many, and how those ended that are in the record."""
    parts = [counted(letter.failures, "failure"), counted(letter.interruptions, "interruption")]
    return f"{letter.attempt} ({', '.join(parts)})"


def print_letter(letter: DeadLetterRecord, trace: str) -> None:
    """One dead letter for a person, with its traceback."""
    print_fields(
        [
            ("message", letter.id),
            ("topic", letter.topic),
            ("group", letter.group),
            ("published", date(letter.born_ms)),
            ("dead since", date(letter.dead_since_ms)),
            ("deliveries", _deliveries(letter)),
            ("cause", letter.cause),
            ("error", letter.error),
            ("fingerprint", letter.fingerprint),
            ("tag", letter.tag),
            ("keys", " ".join(letter.keys) or None),
            ("headers", " ".join(f"{k}={v}" for k, v in letter.headers.items()) or None),
            ("body", body_text(letter.body)),
        ]
    )
    click.echo()
    print_table(
        ["#attempt", "time", "cause", "#seconds", "worker", "error"],
        [
            (
                e.attempt,
                date(e.at_ms),
                e.cause,
                e.seconds,
                e.worker,
                f"{e.type} {e.message}".strip(),
            )
            for e in letter.errors
        ],
    )
    for line in trace.splitlines():
        click.echo(clean(line))
