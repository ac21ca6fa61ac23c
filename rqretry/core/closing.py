"""Objects that hold connections: context managers that close at their end."""

from typing import Self


class Closing:
    """Used in a with statement, it is closed at the end."""

    def close(self) -> None:
        """Give back what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Used in an async with statement, it is closed at the end."""

    async def aclose(self) -> None:
        """Give back what is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
