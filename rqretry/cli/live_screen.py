"""A page that is refreshed: redrawn in place on a terminal, else printed again below."""

from collections.abc import Sequence
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rqretry.cli.output import Part, print_page, terminal


class Screen:
    """Shows pages; a context manager. The last page stays when it ends.

    A page that is longer than the terminal is cut there, but for the last one.
    """

    def __init__(self) -> None:
        console = terminal()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, page: Sequence[Part]) -> None:
        """The next page, instead of the one before."""
        if self._live is None:
            print_page(page)
        else:
            lines = [Text(part) if isinstance(part, str) else part for part in page]
            self._live.update(Group(*lines), refresh=True)
