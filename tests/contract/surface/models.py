"""Types that bodies and arguments have in these tests."""

import threading
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic


class Cabin(Enum):
    ECONOMY = "Y"
    FIRST = "F"


@dataclass
class Flight:
    number: int
    carrier: str
    leaves: datetime | None = None
    cabins: list[Cabin] = field(default_factory=list)


class Seat(TypedDict):
    row: int
    dead_letter: str


class Bag(msgspec.Struct):
    kilos: Decimal
    tag: UUID


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    born: datetime


class Unknown:
    """Nothing can make one of these of JSON."""


class Stubborn(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Picky(Exception):
    """Can be pickled, but not read again."""

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def returned(value: Any) -> Any:
    """Hides a value's type from the type checker."""
    return value
