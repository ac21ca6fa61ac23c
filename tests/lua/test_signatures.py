"""The keys and arguments of scripts are declared once; texts, headers and commands agree with that.

A script with a line `-- @bind` gets its names from the declaration. Publishing names only what it
needs, which saves time, and poll.lua counts from the first key of each place.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry import protocol
from rqretry.protocol.scripts import ScriptLibrary, script_directory
from rqretry.protocol.signatures import SIGNATURES, Signature

NAMES = sorted(SIGNATURES)
STATEMENT = re.compile(r"^ *local ([\w, ]+) = (.*)$", re.MULTILINE)
ITEM = re.compile(r"(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]\)?")
TYPE = re.compile(r":(?:number|flag)\b")
NAMED_BY_HAND = ["publish", "publish_with_options"]


def declared(name: str, what: str) -> list[str]:
    """The names of a script's keys or arguments, those of which there may be many left out."""
    return Signature.fixed(getattr(SIGNATURES[name], "keys" if what == "KEYS" else "arguments"))


def text_of(name: str) -> str:
    """A script as it is written."""
    return (Path(str(script_directory())) / f"{name}.lua").read_text()


def bound(name: str) -> Iterator[tuple[str, str, int]]:
    """What the text of a script calls its keys and arguments."""
    for locals_, values in STATEMENT.findall(text_of(name)):
        for local, value in zip(locals_.split(", "), values.split(", "), strict=False):
            if item := ITEM.fullmatch(value):
                yield local, item[1], int(item[2])


def header(name: str, label: str) -> str:
    """A list in the header of a script, without what it says in brackets."""
    found = re.search(rf"^  {label} +(.*(?:\n {{9}}.*)*)", text_of(name), re.MULTILINE)
    assert found, f"lua/{name}.lua has no {label}"
    listed, removed = found[1], 1
    while removed:
        listed, removed = re.subn(r"\s*\([^()]*\)", "", listed)
    return " ".join(listed.split())


def commands() -> Iterator[tuple[str, list[str]]]:
    """Of each command its script, and its arguments as far as they are named one by one."""
    for path in Path(protocol.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                how = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
                if isinstance(call, ast.Call) and how in ("Command", "call"):
                    order = (
                        ("verb", "keys", "args") if how == "Command" else ("keys", "verb", "args")
                    )
                    given = dict(zip(order, call.args, strict=False))
                    given |= {str(word.arg): word.value for word in call.keywords}
                    verb = re.search(r"'(\w+)'", ast.unparse(given["verb"]))
                    if verb and verb[1] in SIGNATURES:
                        yield verb[1], list(_names(_display(given["args"], function)))


def _display(value: ast.expr, function: ast.FunctionDef) -> ast.Tuple | ast.List:
    """The tuple or list that arguments begin as."""
    if isinstance(value, ast.Call):
        return _display(value.args[0], function)
    if isinstance(value, ast.Name):
        values = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and value.id in re.findall(r"^\w+", ast.unparse(node))
        ]
        assert values[0] is not None
        return _display(values[0], function)
    assert isinstance(value, ast.Tuple | ast.List)
    return value


def _names(display: ast.Tuple | ast.List) -> Iterator[str]:
    for element in display.elts:
        if isinstance(element, ast.Starred):
            return
        yield re.sub(r"^\w+\((.*)\)$", r"\1", ast.unparse(element)).rpartition(".")[2]


COMMANDS = list(commands())


def test_every_script_is_declared_and_has_a_command() -> None:
    assert ScriptLibrary().names() == NAMES
    assert {name for name, _ in COMMANDS} == {*NAMES} - {"publish_with_options"}
    plain = SIGNATURES["publish"].arguments.partition(",")
    with_options = SIGNATURES["publish_with_options"].arguments
    assert with_options.startswith(f"{plain[0]} mode{plain[1]}{plain[2]}")


@pytest.mark.parametrize("name", NAMES)
def test_the_header_of_a_script_is_its_declaration(name: str) -> None:
    signature = SIGNATURES[name]
    assert header(name, "KEYS") == signature.keys
    assert header(name, "ARGV") == (TYPE.sub("", signature.arguments) or "-")


def test_scripts_get_their_names_from_the_declaration() -> None:
    by_hand = [name for name in NAMES if not re.search(r"^-- @bind", text_of(name), re.MULTILINE)]
    assert by_hand == ["poll", *NAMED_BY_HAND]


def test_a_binding_reads_each_argument_by_its_type_and_all_that_follow_as_a_list() -> None:
    signature = Signature("meta ready, then levels", "group limit:number strict:flag, then ids")
    assert signature.binding(table=True).split("; ") == [
        "local meta, ready = unpack(KEYS, 1, 2)",
        "local group, limit, strict = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'",
        "local levels = { unpack(KEYS, 3) }",
        "local ids = { unpack(ARGV, 4) }",
        "local keys = { meta = meta, ready = ready }",
    ]


@pytest.mark.parametrize("name", NAMED_BY_HAND)
def test_names_given_by_hand_are_as_declared(name: str) -> None:
    found = list(bound(name))
    assert found
    for local, what, number in found:
        names = dict(enumerate(declared(name, what), 1))
        assert names.get(number, local) == local, f"{what}[{number}]"


@pytest.mark.parametrize(("name", "given"), COMMANDS)
def test_a_command_passes_its_arguments_in_the_declared_order(name: str, given: list[str]) -> None:
    names = declared(name, "ARGV")
    assert len(given) == len(names)
    assert [new if new in names else old for new, old in zip(given, names, strict=True)] == names
