"""rqretry pipeline package: one file that executors run as their Python."""

import click

from rqretry.cli.options import json_option
from rqretry.cli.output import print_fields, print_summary
from rqretry.spark.python_package import FILE, PackageSummary
from rqretry.spark.python_package import package as run


@click.command(epilog="Example: rqretry pipeline package ./rqretry-python")
@click.argument("file", metavar="[FILE]", default=FILE)
@json_option
def package(file: str, *, as_json: bool) -> None:
    """Build one file that is a Python with rqretry, for a cluster.

    It holds rqretry and what its tasks import, as installed here, but not Spark. Executors need the
    same version of Python, and nothing else: set PYSPARK_PYTHON=./rqretry-python, and --conf
    spark.files=rqretry-python.
    """
    print_summary(run(file), _print, as_json=as_json)


def _print(summary: PackageSummary) -> None:
    print_fields(
        [
            ("file", summary.file),
            ("size", f"{summary.bytes / 1e6:.0f} MB"),
            ("packages", len(summary.packages)),
            ("python", summary.python),
        ]
    )
