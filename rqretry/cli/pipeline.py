"""rqretry pipeline: jobs that run on Spark."""

from importlib.util import find_spec

import click

from rqretry.cli.errors import LazyGroup
from rqretry.cli.options import server_options

_NAMES = ("ingest", "archive", "report", "redrive", "simulate", "package")
_JOBS = {name: f"rqretry.cli.pipeline_{name}:{name}" for name in _NAMES}


class SparkGroup(LazyGroup):
    """Commands that need the extra [spark]."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Raises ConfigError where Spark is missing."""
        if cmd_name in self.lazy and find_spec("pyspark") is None:
            raise click.ClickException(
                f"rqretry pipeline {cmd_name} needs Spark: run pip install 'rqretry[spark]'"
            )
        return super().get_command(ctx, cmd_name)


@click.group(cls=SparkGroup, lazy=_JOBS, epilog="Example: rqretry pipeline archive ./history")
@server_options
def pipeline() -> None:
    """Load, archive, report, redrive and simulate with Spark."""
