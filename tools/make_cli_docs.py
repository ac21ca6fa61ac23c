"""Write docs/cli.md from the commands themselves: run it after changing one.

    python tools/make_cli_docs.py

A test fails while the file is stale.
"""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

import click

from rqretry.cli.main import cli

PLACE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# The command line

<!-- Written by tools/make_cli_docs.py: change the commands, then run it. -->

`rqretry COMMAND --help` says the same in a terminal. For runbooks, see
[operations.md](operations.md).

Every command takes

* `--url URL`: the Redis server; default `RQRETRY_REDIS_URL`, else `redis://localhost:6379/0`;
* `--namespace NAME`: the namespace; default `RQRETRY_NAMESPACE`, else `default`;

before the name of the command or after it. With `--json` a command prints one JSON object on
standard output and nothing else there; its field `schema` is 1. What destroys asks first, or needs
`--yes` where there is no terminal to ask at, and can be tried with `--dry-run`.

Exit status: 0 done, 1 failed, 2 wrong usage. An error is one sentence on standard error.
"""
EVERYWHERE = {"--url", "--namespace", "--help", "--version"}


def render() -> str:
    """The whole page."""
    root = click.Context(cli, info_name="rqretry")
    return HEAD + "".join(_sections(cli, root))


def _sections(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield _section(command, inner)
        if isinstance(command, click.Group):
            yield from _sections(command, inner)


def _section(command: click.Command, context: click.Context) -> str:
    depth = "#" * (1 + context.command_path.count(" "))
    lines = ["", f"{depth} {context.command_path}", "", *_paragraphs(command.help or "")]
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        links = [f"[{n}](#{_anchor(f'{context.command_path} {n}')})" for n in names]
        return "\n".join([*lines, f"Commands: {', '.join(links)}.", ""])
    lines += ["```", f"{context.command_path} {' '.join(_usage(command))}".rstrip(), "```", ""]
    rows = [_row(p) for p in command.params if isinstance(p, click.Option) and _own(p)]
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    lines += [_example(command.epilog or ""), ""]
    return "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    found = []
    for paragraph in text.strip().split("\n\n"):
        found += [fill(" ".join(paragraph.split()), 100, break_on_hyphens=False), ""]
    return found


def _usage(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            name = parameter.metavar or (parameter.name or "").upper()
            yield name if parameter.required or name.startswith("[") else f"[{name}]"
    required = [p for p in command.params if isinstance(p, click.Option) and p.required]
    yield from (f"{option.opts[0]} {_value(option)}" for option in required)
    yield "[OPTIONS]"


def _own(option: click.Option) -> bool:
    return not option.hidden and not EVERYWHERE & set(option.opts)


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = _value(option)
    text = " ".join((option.help or "").split())
    if option.show_default and option.default is not None:
        text += f" Default `{option.default}`."
    if option.required:
        text += " Required."
    return f"| {names}{f' `{value}`' if value else ''} | {text} |"


def _value(option: click.Option) -> str:
    """What follows the option; "" for a flag."""
    if option.is_flag:
        return ""
    if option.metavar:
        return option.metavar.replace("|", "\\|")
    if isinstance(option.type, click.Choice):
        return "\\|".join(str(choice) for choice in option.type.choices)
    return "N" if isinstance(option.type, click.types.IntParamType) else "TEXT"


def _example(epilog: str) -> str:
    kind, _, text = epilog.partition(": ")
    examples = [f"`{example.strip()}`" for example in text.split("; ")]
    return f"{kind}: {', '.join(examples)}"


def _anchor(title: str) -> str:
    return title.replace(" ", "-")


if __name__ == "__main__":
    PLACE.write_text(render(), encoding="utf-8")
