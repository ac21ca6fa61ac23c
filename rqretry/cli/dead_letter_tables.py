"""Printing dead letters."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import click

from rqretry.admin.views import Cluster
from rqretry.cli.confirmation import counted
from rqretry.cli.output import (
    SCHEMA,
    body_fields,
    body_text,
    clean,
    date,
    fields_of,
    headers_text,
    json_line,
    print_fields,
    print_list,
    print_table,
    rows_of,
)
from rqretry.core.dead_letter import DeadLetterRecord

_ERROR_FIELDS = "attempt at_ms cause type message fingerprint worker seconds"


def print_clusters(group: str, clusters: Sequence[Cluster], *, as_json: bool) -> None:
    """One row for each fingerprint."""
    names = ("fingerprint", "count", "first", "last", "sample_id", "error")
    rows = [*rows_of(clusters, "fingerprint count first_ms last_ms sample_id error")]
    table = (["fingerprint", "#count", "first", "last", "sample", "error"], rows)
    fields = [dict(zip(names, row, strict=True)) for row in rows]
    print_list({"group": group}, "clusters", fields, table, as_json=as_json)


def print_messages(
    group: str, pages: Iterable[Sequence[DeadLetterRecord]], *, as_json: bool
) -> bool:
    """One row for each message, page by page; whether there are any."""
    head, tail = json_line({"schema": SCHEMA, "group": group, "messages": []}).rsplit("]", 1)
    separator = ""
    if as_json:
        click.echo(head, nl=False)
    for page in pages:
        fields = [json_line(fields_of(each, "id topic attempt cause error")) for each in page]
        if as_json:
            click.echo(separator + ", ".join(fields), nl=False)
        else:
            rows = rows_of(page, "id topic attempt cause dead_since_ms error")
            print_table(["id", "topic", "#attempt", "cause", "dead since", "error"], rows)
        separator = ", "
    if as_json:
        click.echo(f"]{tail}")
    return bool(separator)


def dead_letter_fields(dead_letter: DeadLetterRecord) -> dict[str, Any]:
    """One dead letter for JSON."""
    return {
        **fields_of(dead_letter, "group id topic"),
        **body_fields(dead_letter.body),
        "raw": base64.b64encode(dead_letter.raw).decode(),
        **fields_of(dead_letter, "tag keys headers"),
        "published": date(dead_letter.born_ms),
        **fields_of(dead_letter, "attempt failures interruptions cause error fingerprint"),
        "dead_since": date(dead_letter.dead_since_ms),
        "errors": [fields_of(error, _ERROR_FIELDS) for error in dead_letter.errors],
    }


def print_dead_letter(dead_letter: DeadLetterRecord, trace: str) -> None:
    """One dead letter for a person, with its traceback."""
    failures = counted(dead_letter.failures, "failure")
    interruptions = counted(dead_letter.interruptions, "interruption")
    print_fields(
        [
            ("message", dead_letter.id),
            ("topic", dead_letter.topic),
            ("group", dead_letter.group),
            ("published", date(dead_letter.born_ms)),
            ("dead since", date(dead_letter.dead_since_ms)),
            ("deliveries", f"{dead_letter.attempt} ({failures}, {interruptions})"),
            *fields_of(dead_letter, "cause error fingerprint tag").items(),
            ("keys", " ".join(dead_letter.keys) or None),
            ("headers", headers_text(dead_letter.headers)),
            ("body", body_text(dead_letter.body)),
        ]
    )
    click.echo()
    rows = [
        (e.attempt, date(e.at_ms), e.cause, e.seconds, e.worker, f"{e.type} {e.message}".strip())
        for e in dead_letter.errors
    ]
    print_table(["#attempt", "time", "cause", "#seconds", "worker", "error"], rows)
    for line in trace.splitlines():
        click.echo(clean(line))
