"""The command line called in this process, and dead letters to try it on."""

import json
from typing import Any

from click.testing import CliRunner, Result

from rqretry import Client
from rqretry.cli.main import cli

CLEAN = {"RQRETRY_REDIS_URL": None, "RQRETRY_NAMESPACE": None, "RQRETRY_DELAY_LEVELS": None}


class Shell:
    """Calls the command line in this process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *request_parts: str, stdin: str | bytes | None = None, **env: str) -> Result:
        """Run one command; whatever its status."""
        variables = {**CLEAN, "RQRETRY_REDIS_URL": self.url, **env}
        return CliRunner(env=variables).invoke(cli, request_parts, input=stdin, prog_name="rqretry")

    def ok(self, *request_parts: str, stdin: str | bytes | None = None) -> str:
        """Run one command that must succeed; its standard output."""
        result = self(*request_parts, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *request_parts: str, stdin: str | bytes | None = None) -> dict[str, Any]:
        """Run one command that must succeed and print one JSON object, nothing else."""
        fields: dict[str, Any] = json.loads(self.ok(*request_parts, "--json", stdin=stdin))
        assert fields.pop("schema") == 1
        return fields

    def fails(
        self, *request_parts: str, status: int, stdin: str | bytes | None = None, **env: str
    ) -> str:
        """Run one command that must fail with this status and one line of error; that line."""
        result = self(*request_parts, stdin=stdin, **env)
        assert result.exit_code == status, result.output
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("Error: ")
        assert "Traceback" not in result.output
        return lines[0]


def dead_letter(client: Client, topic: str, group: str, *bodies: Any) -> list[str]:
    """Dead letters: published, received once by a group without retries, and expired."""
    client.admin.create_topic(topic)
    consumer = client.simple_consumer(topic, group=group, create_group=True, max_retries=0)
    ids = [str(id_) for id_ in client.publish_many(topic, bodies)]
    while client.admin.stats(topic, group).dead < len(ids):
        consumer.receive(32, invisible_duration=0.01, wait=0.02)
    return ids
