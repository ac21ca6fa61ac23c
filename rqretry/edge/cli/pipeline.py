"""rqretry pipeline: jobs that run on Spark."""

from importlib.util import find_spec

import click

from rqretry.edge.cli.boundary import LazyGroup
from rqretry.edge.cli.options import server_options

_JOBS = {
    "ingest": "rqretry.edge.cli.ingest:ingest",
    "archive": "rqretry.edge.cli.archive:archive",
    "report": "rqretry.edge.cli.report:report",
    "redrive": "rqretry.edge.cli.redrive:redrive",
    "simulate": "rqretry.edge.cli.simulate:simulate",
}


class SparkGroup(LazyGroup):
    """Commands that need the extra [spark]."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or say what is missing."""
        if cmd_name in self.lazy and find_spec("pyspark") is None:
            raise click.ClickException(
                f"rqretry pipeline {cmd_name} needs Spark: run pip install 'rqretry[spark]'"
            )
        return super().get_command(ctx, cmd_name)


@click.group(cls=SparkGroup, lazy=_JOBS, epilog="Example: rqretry pipeline archive ./history")
@server_options
def pipeline() -> None:
    """Run jobs on Spark: load a topic, keep its history, find what died and send it back."""
