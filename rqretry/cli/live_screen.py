"""A page that is refreshed: redrawn in place on a terminal, else printed again below."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.segment import Segment, SegmentLines
from rich.text import Text

from rqretry.cli.output import Part, clean, print_page, terminal

_LINE, _PAGE, _END = 1, 1.0, 10**9
_KEYS: dict[bytes, float] = {
    b"\x1b[A": -_LINE, b"k": -_LINE, b"\x1b[B": _LINE, b"j": _LINE,
    b"\x1b[5~": -_PAGE, b"b": -_PAGE, b"\x1b[6~": _PAGE, b" ": _PAGE,
    b"\x1b[H": -_END, b"g": -_END, b"\x1b[F": _END, b"G": _END,
}  # fmt: skip
"""How far each key moves: lines, or as a float pages."""
_HOW = "arrows, page up and page down move, q ends"


class Screen:
    """Where pages are printed one below the other."""

    def show(self, page: Sequence[Part]) -> None:
        """Show a page."""
        print_page(page)

    def wait(self, seconds: float) -> bool:
        """Wait for the next one; whether there is to be one."""
        time.sleep(seconds)
        return True


class LiveScreen(Screen):
    """A terminal: as many lines of a page as fit, from the one on to which keys have moved."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console, self._live = console, live
        self._whole = Group()
        self._lines: list[list[Segment]] = []
        self._first = 0

    def show(self, page: Sequence[Part]) -> None:
        """Draw it over the one before, from the same line on."""
        parts = [Text(clean(part)) if isinstance(part, str) else part for part in page]
        self._whole = Group(*parts)
        self._lines = self._console.render_lines(self._whole, pad=False)
        self._draw()

    def wait(self, seconds: float) -> bool:
        """Also move as the keys say; False once q was pressed."""
        if not sys.stdin.isatty():
            return super().wait(seconds)
        end, keyboard = time.monotonic() + seconds, sys.stdin.fileno()
        while (left := end - time.monotonic()) > 0:
            if not select.select([keyboard], [], [], left)[0]:
                break
            key = os.read(keyboard, 16)
            if key in (b"q", b""):
                return False
            self.move(key)
        return True

    def move(self, key: bytes) -> None:
        """Move as a key says."""
        by = _KEYS.get(key, 0)
        self._first += by if isinstance(by, int) else round(by * self._fit)
        self._draw()

    def draw_all(self) -> None:
        """Whatever fits or not, for the end."""
        self._live.update(self._whole, refresh=True)

    @property
    def _fit(self) -> int:
        return max(1, self._console.height - 2)

    def _draw(self) -> None:
        count, fit = len(self._lines), self._fit
        if count <= fit + 1:
            self._first = 0
            self.draw_all()
            return
        self._first = max(0, min(self._first, count - fit))
        last = self._first + fit
        where = Text(f"lines {self._first + 1} to {last} of {count}: {_HOW}", style="reverse")
        shown = SegmentLines(self._lines[self._first : last], new_lines=True)
        self._live.update(Group(shown, where), refresh=True)


@contextmanager
def screen() -> Iterator[Screen]:
    """Gives what shows a page instead of the one before; the last one stays at the end, whole."""
    console = terminal()
    if not console.is_terminal:
        yield Screen()
        return
    with (
        _keys_at_once(),
        Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live,
    ):
        shown = LiveScreen(console, live)
        yield shown
        shown.draw_all()


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Keys are read without a line's end, and not printed; then the terminal is as it was."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
