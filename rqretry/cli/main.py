"""The program `rqretry`: its commands, and the options that all of them take."""

import sys

import click

from rqretry.cli.errors import Program
from rqretry.cli.options import server_options
from rqretry.version import __version__

_ELSEWHERE = {
    "dev": "rqretry.cli.worker:dev",
    "inflight": "rqretry.cli.workers:inflight",
    "dashboard": "rqretry.dashboard.command:dashboard",
    "demo": "rqretry.demo.command:demo",
    "gateway": "rqretry.gateway.command:gateway",
    "plan": "rqretry.cli.plan:plan_",
}
GROUPS = {
    "Run": "worker dev dashboard gateway exporter reaper demo",
    "Send": "publish receive recall pipeline",
    "Look": "status message workers inflight audit doctor plan",
    "Manage": "topic group dlq transaction cron fsck acl",
}
"""The commands as the help lists them."""
COMMANDS = {
    name: _ELSEWHERE.get(name, f"rqretry.cli.{name}:{name}")
    for names in GROUPS.values()
    for name in names.split()
}
"""Where each command is."""


@click.group(
    cls=Program,
    lazy=COMMANDS,
    sections=GROUPS,
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
