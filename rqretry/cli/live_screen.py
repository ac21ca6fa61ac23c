"""A page that is refreshed: redrawn in place on a terminal, else printed again below."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rqretry.cli.output import Part, clean, print_page, terminal


@contextmanager
def screen() -> Iterator[Callable[[Sequence[Part]], None]]:
    """Gives what shows a page instead of the one before; the last one stays at the end.

    A page that is longer than the terminal is cut there, but for the last one.
    """
    console = terminal()
    if not console.is_terminal:
        yield print_page
        return
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:

        def show(page: Sequence[Part]) -> None:
            lines = [Text(clean(part)) if isinstance(part, str) else part for part in page]
            live.update(Group(*lines), refresh=True)

        yield show
