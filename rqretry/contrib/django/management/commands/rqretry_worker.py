"""manage.py rqretry_worker: `rqretry worker` for the App that the setting RQRETRY_APP names."""

import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, handle_default_options

from rqretry.cli.main import cli
from rqretry.core.errors import RqretryError


class Command(BaseCommand):
    """Takes the options of `rqretry worker`, beside --settings and --pythonpath."""

    help = "Run the handlers of RQRETRY_APP in worker processes; see rqretry worker --help."

    def run_from_argv(self, argv: list[str]) -> None:
        """Leave the options that are not Django's to `rqretry worker`."""
        parser = self.create_parser(argv[0], argv[1], allow_abbrev=False, add_help=False)
        django_options, others = parser.parse_known_args(argv[2:])
        handle_default_options(django_options)
        try:
            self.execute(*others, **vars(django_options))
        except (CommandError, RqretryError) as error:
            self.stderr.write(f"{error.__class__.__name__}: {error}")
            sys.exit(getattr(error, "returncode", 1))

    def handle(self, *args: str, **_: Any) -> None:
        """Run until a signal stops it; does not return."""
        try:
            from rqretry.contrib.django.worker import TARGET  # noqa: PLC0415 - needs Django set up
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        cli.main(["worker", TARGET, *args], prog_name="rqretry")
