"""Printing dead letters."""

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


def print_clusters(group: str, dead_letters: Sequence[DeadLetterRecord], *, as_json: bool) -> None:
    """One row for each fingerprint."""
    rows = clusters(dead_letters)
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


def print_messages(group: str, dead_letters: Sequence[DeadLetterRecord], *, as_json: bool) -> None:
    """One row for each message."""
    if as_json:
        fields = [
            {
                name: getattr(dead_letter, name)
                for name in ("id", "topic", "attempt", "cause", "error")
            }
            for dead_letter in dead_letters
        ]
        print_json({"group": group, "messages": fields})
    elif dead_letters:
        print_table(
            ["id", "topic", "#attempt", "cause", "dead since", "error"],
            [
                (x.id, x.topic, x.attempt, x.cause, date(x.dead_since_ms), x.error)
                for x in dead_letters
            ],
        )


def dead_letter_fields(dead_letter: DeadLetterRecord) -> dict[str, Any]:
    """One dead letter for JSON."""
    return {
        "group": dead_letter.group,
        "id": dead_letter.id,
        "topic": dead_letter.topic,
        **body_fields(dead_letter.body),
        "raw": base64.b64encode(dead_letter.raw).decode(),
        "tag": dead_letter.tag,
        "keys": list(dead_letter.keys),
        "headers": dead_letter.headers,
        "published": date(dead_letter.born_ms),
        "attempt": dead_letter.attempt,
        "failures": dead_letter.failures,
        "interruptions": dead_letter.interruptions,
        "cause": dead_letter.cause,
        "error": dead_letter.error,
        "fingerprint": dead_letter.fingerprint,
        "dead_since": date(dead_letter.dead_since_ms),
        "errors": [_error_fields(error) for error in dead_letter.errors],
    }


def _error_fields(error: AttemptError) -> dict[str, Any]:
    names = ("attempt", "at_ms", "cause", "type", "message", "fingerprint", "worker", "seconds")
    return {name: getattr(error, name) for name in names}


def _deliveries(dead_letter: DeadLetterRecord) -> str:
    """How many, and how those in the record ended."""
    parts = [
        counted(dead_letter.failures, "failure"),
        counted(dead_letter.interruptions, "interruption"),
    ]
    return f"{dead_letter.attempt} ({', '.join(parts)})"


def print_dead_letter(dead_letter: DeadLetterRecord, trace: str) -> None:
    """One dead letter for a person, with its traceback."""
    print_fields(
        [
            ("message", dead_letter.id),
            ("topic", dead_letter.topic),
            ("group", dead_letter.group),
            ("published", date(dead_letter.born_ms)),
            ("dead since", date(dead_letter.dead_since_ms)),
            ("deliveries", _deliveries(dead_letter)),
            ("cause", dead_letter.cause),
            ("error", dead_letter.error),
            ("fingerprint", dead_letter.fingerprint),
            ("tag", dead_letter.tag),
            ("keys", " ".join(dead_letter.keys) or None),
            ("headers", " ".join(f"{k}={v}" for k, v in dead_letter.headers.items()) or None),
            ("body", body_text(dead_letter.body)),
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
            for e in dead_letter.errors
        ],
    )
    for line in trace.splitlines():
        click.echo(clean(line))
