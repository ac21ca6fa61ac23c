"""How long to leave alone what fails again and again."""

FIRST_S, LONGEST_S = 0.5, 120.0


class BackOff:
    """Twice as long after each failure: half a second at first, two minutes in the end.

    Attributes:
        again_at: The monotonic time before which it is left alone; 0 while it works.
        reason: Why it failed the last time; "" while it works.
    """

    __slots__ = ("_wait_s", "again_at", "reason")

    def __init__(self) -> None:
        self.worked()

    def worked(self) -> None:
        """It is all right again."""
        self.again_at, self.reason, self._wait_s = 0.0, "", FIRST_S

    def failed(self, reason: str, now: float) -> None:
        """It failed at this monotonic time."""
        self.again_at, self.reason = now + self._wait_s, reason
        self._wait_s = min(2 * self._wait_s, LONGEST_S)

    def pause(self, seconds: float, now: float) -> None:
        """Nothing is wrong with it, but it cannot be reached now."""
        self.again_at = now + seconds
