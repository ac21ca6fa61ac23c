"""rqretry doctor: is this server safe for a queue?"""

from dataclasses import asdict

import click

from rqretry.admin.process_findings import process_findings
from rqretry.checks.check_result import Finding
from rqretry.checks.doctor import refused
from rqretry.checks.server_checks import examine
from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.options import json_command, target_of
from rqretry.cli.output import print_json, print_table
from rqretry.cli.session import connected
from rqretry.core.errors import UnsafeServer
from rqretry.core.parts import parts_of
from rqretry.transport.store_sync import FIRST_REPEAT_SECONDS


@click.command(epilog="Example: rqretry doctor --url redis://localhost:6379/0")
@json_command
def doctor(context: click.Context, *, as_json: bool) -> int:
    """Check version, settings, clock, latency and rights of Redis.

    Also role, eviction, persistence and cluster mode. Of Sentinels, the primary they name; of a
    cluster, each primary: their replicas, what happens when they are cut off, and whether every
    slot is served. And whether somebody moves what is due, and all workers have one version.

    The exit status is 1 if a worker would refuse to start on this server.
    """
    settings = target_of(context).settings()
    try:
        with connected(context) as client:
            parts_of(client).store.repeat_seconds = FIRST_REPEAT_SECONDS
            parts = parts_of(client)
            findings = examine(parts.store, settings.namespace)
            if not refused(findings):
                findings += parts.store.perform(process_findings(parts.operator))
    except UnsafeServer as error:  # too old for the other checks
        findings = [Finding("version", "refused", str(error), "upgrade the server")]
    if as_json:
        where = {"url": settings.url.safe, "namespace": settings.namespace}
        print_json(where | {"findings": [asdict(finding) for finding in findings]})
    else:
        click.echo(f"Redis at {settings.url.safe}, namespace {settings.namespace}")
        rows = [(f.severity, f.check, f.sentence, f.fix) for f in findings]
        print_table(["", "check", "finding", "what to do"], rows)
    return FAILED if refused(findings) else DONE
