"""Where every error becomes one sentence and an exit status: 0 done, 1 failed, 2 wrong usage."""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import click

from rqretry.cli.streams import flush_output, forget_output, prepare_streams
from rqretry.core.errors import InvalidArgument, RqretryError, StoreUnavailable, escape, show
from rqretry.core.settings import URL_VARIABLE
from rqretry.core.suggestion import did_you_mean

DONE, FAILED, USAGE = 0, 1, 2
_LONGEST = 1200
_SECRET = re.compile(r"(://)[^\s'\"]*@")
_READ = 10_000
"""So much of a text is searched: that takes time in the square of it."""


class CommandGroup(click.Group):
    """A group that suggests the command that was meant, and shows its help when none is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help where nothing follows; that is wrong usage."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or name the nearest one."""
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        hint = did_you_mean(name, self.list_commands(ctx))
        raise click.UsageError(f"there is no command {show(name)}{hint}", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error that begins with an argument's name gets the option's."""
        try:
            return super().invoke(ctx)
        except InvalidArgument as error:
            name, blank, rest = str(error).partition(" ")
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            for option in command.params if command else ():
                if isinstance(option, click.Option) and option.name == name:
                    error.args = (f"{option.opts[0]}{blank}{rest}",)
            raise


class LazyGroup(CommandGroup):
    """A group that imports a command's module only when the command is wanted."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **extra: Any) -> None:
        """`lazy`: name to "module:attribute"."""
        super().__init__(*args, **extra)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the table."""
        del ctx
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or None."""
        del ctx
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class Program(LazyGroup):
    """Run the program: it ends with an exit status and at most one sentence, not a traceback."""

    def __init__(self, *args: Any, sections: Mapping[str, str], **extra: Any) -> None:
        """`sections`: what the help lists under each heading, names with blanks between them."""
        super().__init__(*args, **extra)
        self.sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their headings, in columns of one width."""
        longest = max(map(len, self.lazy))
        room = formatter.width - longest - 6
        for heading, names in self.sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names.split()]
            rows = [(n.ljust(longest), c.get_short_help_str(room)) for n, c in commands if c]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and exit with the status; only `standalone_mode=False` returns."""
        run: Callable[..., Any] = super().main
        if extra.pop("standalone_mode", True):
            prepare_streams()
            sys.exit(_status(partial(run, *args, standalone_mode=False, **extra)))
        return run(*args, standalone_mode=False, **extra)


def sentence(text: str) -> str:
    """One printable line, without the user and password of any URL in it."""
    line = escape(_SECRET.sub(r"\1***@", " ".join(text[:_READ].split())))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _status(run: Callable[[], Any]) -> int:
    try:
        answer = run()
        flush_output()
    except (click.ClickException, RqretryError) as error:
        return _report(error)
    except (click.Abort, KeyboardInterrupt):
        return FAILED
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        forget_output()
        return FAILED
    except OSError as error:
        with suppress(OSError):
            flush_output()
        path = f"{show(error.filename)}: " if error.filename is not None else ""
        return _fail(f"{path}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        name, text = type(error).__name__, show(str(error))
        return _fail(f"{name}: {text} (a bug in rqretry; please report it)")
    return answer if isinstance(answer, int) else DONE


def _report(error: click.ClickException | RqretryError) -> int:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "rqretry"
        return _fail(f"{_usage_message(error)} (see {path} --help)", USAGE)
    if isinstance(error, click.ClickException):
        return _fail(error.format_message(), error.exit_code)
    if isinstance(error, StoreUnavailable) and str(error).endswith("is unreachable"):
        return _fail(f"{error}: start it, or name another with --url or {URL_VARIABLE}")
    return _fail(str(error), USAGE if isinstance(error, InvalidArgument) else FAILED)


def _usage_message(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        hint = did_you_mean(error.option_name, error.possibilities or ())
        return f"there is no option {show(error.option_name)}{hint}"
    return error.format_message().rstrip(".")


def _fail(text: str, status: int = FAILED) -> int:
    with suppress(BrokenPipeError):
        click.echo(f"Error: {sentence(text)}", err=True)
    return status
