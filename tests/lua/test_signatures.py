"""The keys of a script are declared once, by its command; the script's text agrees with that."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry import protocol
from rqretry.protocol.scripts import ScriptLibrary, script_directory

NAMES = ScriptLibrary().names()
BINDING = re.compile(r"local ([\w, ]+) = ((?:KEYS\[\d+\](?:, )?)+)\n")
FIELD = re.compile(r"(\w+) = KEYS\[(\d+)\]")
KEY = re.compile(r"KEYS\[(\d+)\]")
ALIASES = {
    "ids_key": "ids",
    "open": "open_transactions",
    "unfinished": "unfinished_transactions",
    "parked": "parked_transactions",
    "finished": "finished_transactions",
    "details": "worker_details",
}
"""How a script may call a key otherwise than its command does."""


def declared() -> dict[str, list[str]]:
    """Of each script, its first keys as its command names them."""
    found: dict[str, list[str]] = {}
    for path in Path(protocol.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                found.update(_declared_in(function))
    return found


def _declared_in(function: ast.FunctionDef) -> Iterator[tuple[str, list[str]]]:
    tuples = [node for node in ast.walk(function) if isinstance(node, ast.Tuple | ast.List)]
    names = [_names(node) for node in tuples]
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and node.value in NAMES and any(names):
            yield str(node.value), max(names, key=len)


def _names(node: ast.Tuple | ast.List) -> list[str]:
    names = []
    for element in node.elts:
        if not isinstance(element, ast.Attribute):
            break
        names.append(element.attr)
    return names


def bound(name: str) -> dict[int, str]:
    """What the text of a script calls its keys, by number."""
    text = (Path(str(script_directory())) / f"{name}.lua").read_text()
    fields = re.sub(r"^local [\w ]+,.*", "", text, flags=re.MULTILINE)
    found = {int(number): local for local, number in FIELD.findall(fields)}
    for locals_, keys in BINDING.findall(text):
        numbers = map(int, KEY.findall(keys))
        found.update(zip(numbers, locals_.split(", "), strict=True))
    return found


DECLARED = declared()
del DECLARED["audit_append"]  # of two commands, each with a stream of its own


def test_most_scripts_are_compared() -> None:
    compared = [name for name, keys in DECLARED.items() if bound(name) and len(keys) > 1]
    assert len(compared) > 40


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_script_calls_its_keys_as_its_command_does(name: str) -> None:
    keys = DECLARED[name]
    known = {at: ALIASES.get(local, local) for at, local in bound(name).items() if at <= len(keys)}
    assert known == {at: keys[at - 1] for at in known}
