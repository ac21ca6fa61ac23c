"""Batch handlers that run in processes of their own; they are found here by name."""

from typing import Any

from rqretry import DeadLetter, Message


class Unlike(Exception):
    """What a handler returns for a message, and cannot be read again where it was pickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def judge(messages: list[Message[Any]]) -> dict[str, Any]:
    """An outcome of each kind."""
    kinds = {
        "good": True,
        "none": None,
        "raised": Unlike("no", "way"),
        "dead": DeadLetter("no use"),
        "generator": (n for n in range(3)),
    }
    return {m.id: kinds[m.body] for m in messages if m.body in kinds}


def listed(messages: list[Message[Any]]) -> list[Exception]:
    """What is no outcome."""
    return [ValueError(message.id) for message in messages]
