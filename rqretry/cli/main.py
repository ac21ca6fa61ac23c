"""The program `rqretry`: its commands, and the options that all of them take."""

import sys

import click

from rqretry.cli.errors import Program
from rqretry.cli.options import server_options
from rqretry.version import __version__

_CLI = "rqretry.cli"
COMMANDS = {
    "worker": f"{_CLI}.worker:worker",
    "dev": f"{_CLI}.worker:dev",
    "publish": f"{_CLI}.publish:publish",
    "receive": f"{_CLI}.receive:receive",
    "recall": f"{_CLI}.recall:recall",
    "status": f"{_CLI}.status:status",
    "message": f"{_CLI}.message:message",
    "topic": f"{_CLI}.topic:topic",
    "group": f"{_CLI}.group:group",
    "dlq": f"{_CLI}.dlq:dlq",
    "transaction": f"{_CLI}.transaction:transaction",
    "workers": f"{_CLI}.workers:workers",
    "inflight": f"{_CLI}.workers:inflight",
    "audit": f"{_CLI}.audit:audit",
    "reaper": f"{_CLI}.reaper:reaper",
    "exporter": f"{_CLI}.exporter:exporter",
    "dashboard": "rqretry.dashboard.command:dashboard",
    "pipeline": f"{_CLI}.pipeline:pipeline",
    "demo": "rqretry.demo.command:demo",
    "doctor": f"{_CLI}.doctor:doctor",
    "acl": f"{_CLI}.acl:acl",
    "fsck": f"{_CLI}.fsck:fsck",
}


@click.group(
    cls=Program,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: rqretry publish claims --body '{\"flight\": 1}'",
)
@click.version_option(__version__, prog_name="rqretry", message="%(prog)s %(version)s")
@server_options
def cli() -> None:
    """Consumer groups with a retry ladder and a dead-letter queue, on Redis."""


def main() -> None:
    """Run the program; does not return."""
    sys.exit(cli.main(prog_name="rqretry"))


if __name__ == "__main__":
    main()
