"""Docstrings in Google's style, read: which arguments one explains, and which errors it names."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import rqretry
from rqretry import testing

REFERENCE = re.compile(r"\b(?:[Ss]ee|As|those of|methods of) `?((?:\w+\.)*\w+)`?|^`(\w+)`")
"""What a text refers to: "see X", or the method of the same class that it begins with."""
SECTION = re.compile(r"^(Args|Attributes|Raises):\n((?:    .*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^    ([\w, ]+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
INLINE = re.compile(r"\bRaises ((?:\w+, )*\w+)")


def at(path: str) -> Any:
    """What `rqretry` has there; None for nothing."""
    value: Any = testing if path.startswith("Lab") else rqretry
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def texts(path: str, call: Callable[..., Any]) -> Iterator[str]:
    """Its docstring, that of the class it is a method of, and those that these refer to."""
    owner = path.partition(".")[0]
    found, seen = [call, at(owner)], list[Any]()
    while found:
        one = found.pop(0)
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        text = inspect.getdoc(one) or ""
        yield f"{text}\n"
        for names in REFERENCE.findall(text):
            named = next(filter(None, names), "")
            found += [at(f"{owner}.{named}") or at(named), at(named.partition(".")[0])]


def arguments(path: str, call: Callable[..., Any]) -> dict[str, str]:
    """What is said of each argument."""
    found: dict[str, str] = {}
    for text in texts(path, call):
        for kind, body in SECTION.findall(text):
            for names, meaning in ENTRY.findall(body) if kind != "Raises" else ():
                for name in names.split(", "):
                    found.setdefault(name, " ".join(meaning.split()))
    return found


def errors(path: str, call: Callable[..., Any]) -> set[str]:
    """The names of the errors that it is said to raise."""
    found: set[str] = set()
    for text in texts(path, call):
        named = [
            names
            for kind, body in SECTION.findall(text)
            if kind == "Raises"
            for names, _ in ENTRY.findall(body)
        ]
        for names in [*named, *INLINE.findall(text)]:
            found.update(names.split(", "))
    return found
