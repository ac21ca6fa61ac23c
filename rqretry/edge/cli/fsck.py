"""rqretry fsck: do indexes, bodies and states agree? Nothing is written."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from rqretry.checks.auditor import ERROR, Finding, audit
from rqretry.client import Client
from rqretry.edge.cli.boundary import DONE, FAILED
from rqretry.edge.cli.options import json_option, server_options
from rqretry.edge.cli.output import note, print_json, print_table
from rqretry.edge.cli.session import connected, elsewhere
from rqretry.records import TopicRecord


@click.command(epilog="Example: rqretry fsck --json")
@json_option
@server_options
@click.pass_context
def fsck(context: click.Context, *, as_json: bool) -> int:
    """Read every partition of the namespace and report what does not agree.

    The exit status is 1 if a message is lost, stuck, or would be handled twice.
    """
    with connected(context) as client:
        topics = client.store.perform(client.catalog.topics())
        findings = [finding for topic in topics for finding in _audit(client, topic)]
        namespace = client.settings.namespace
        if not topics:
            note(f"namespace {namespace} has no topics{elsewhere(client)}")
    partitions = sum(topic.partitions for topic in topics)
    errors = [finding for finding in findings if finding.severity == ERROR]
    if as_json:
        fields = [asdict(finding) for finding in findings]
        print_json({"namespace": namespace, "partitions": partitions, "findings": fields})
    else:
        _print(findings, partitions, len(errors))
    return FAILED if errors else DONE


def _audit(client: Client, topic: TopicRecord) -> list[Finding]:
    found = []
    for number in range(topic.partitions):
        keys = client.catalog.partition(topic.name, number)
        groups = [client.catalog.group_keys(topic.name, number, g.name) for g in topic.members]
        found += client.store.perform(audit(keys, groups))
    return found


def _print(findings: Sequence[Finding], partitions: int, errors: int) -> None:
    if findings:
        rows = [(f.severity, f.kind, f.key, f.id, f.text) for f in sorted(findings)]
        print_table(["", "kind", "key", "id", "finding"], rows)
    warnings = len(findings) - errors
    click.echo(f"{partitions} partitions read: {errors} errors, {warnings} warnings")
