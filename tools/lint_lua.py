"""Lint the Lua scripts as the server gets them: composed, with their includes.

Each script is written to build/lua and checked by luacheck. Where luacheck is not installed
(it is not on PyPI), the Lua compiler of lupa checks the syntax, and its bytecode which globals
are read and written; .luacheckrc is the list of allowed ones in both cases. Complaints name
the file and line of the source, not of the composed text.
"""

import re
import shutil
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from lupa.lua51 import LuaError, LuaRuntime

from rqretry.core.errors import ScriptError
from rqretry.protocol.scripts import Script, ScriptLibrary

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "lua"
CONFIG = ROOT / ".luacheckrc"
LINE_OF_LUACHECK = re.compile(r"(?P<file>[^:\s]+\.lua):(?P<line>\d+):(?P<rest>.*)")
LINE_OF_COMPILER = re.compile(r":(?P<line>\d+): (?P<rest>.*)")
UNUSED_FUNCTION = "(W211) unused function"
GETGLOBAL, SETGLOBAL = 5, 7


def main() -> int:
    """Compose and check every script; 1 if there is a complaint."""
    try:
        library = ScriptLibrary()
        scripts = [library.get(name) for name in library.names()]
    except ScriptError as error:
        print(error)
        return 1
    write(scripts)
    if shutil.which("luacheck"):
        checker, complaints = "luacheck", with_luacheck(scripts)
    else:
        checker, complaints = "lupa: syntax and globals; luacheck checks more", with_lupa(scripts)
    for complaint in complaints:
        print(complaint)
    print(f"{len(scripts)} Lua scripts checked ({checker}), {len(complaints)} complaints")
    return 1 if complaints or not scripts else 0


def write(scripts: list[Script]) -> None:
    """Write the composed scripts to build/lua."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    for script in scripts:
        (BUILD / f"{script.name}.lua").write_text(script.source, encoding="utf-8")


def with_luacheck(scripts: list[Script]) -> list[str]:
    """The complaints of luacheck. A header line is missing in build/lua, hence the + 1."""
    command = ("luacheck", "--config", str(CONFIG), "--formatter", "plain", "--codes", str(BUILD))
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if finished.returncode > 2:
        return [f"luacheck failed: {finished.stdout}{finished.stderr}"]
    by_name = {script.name: script for script in scripts}
    complaints = []
    unused: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in finished.stdout.splitlines():
        match = LINE_OF_LUACHECK.search(line)
        if match is None:
            complaints.append(line)
            continue
        script = by_name[Path(match["file"]).stem]
        place = script.locate(int(match["line"]) + 1)
        complaint = f"{place}:{match['rest']}"
        if UNUSED_FUNCTION in complaint and place.startswith("lua/include/"):
            unused[script.name, place.partition(":")[0]].append(complaint)
        else:
            complaints.append(complaint)
    for (name, include), functions in unused.items():
        if len(functions) == functions_of(include):  # a part of an include may be enough
            complaints.append(f"lua/{name}.lua: {include} is included, but nothing of it is used")
    return sorted(set(complaints))  # an include is checked with every script that has it


def functions_of(include: str) -> int:
    """How many functions an include gives to the script that names it."""
    return sum(line.startswith("local function") for line in (ROOT / include).open())


def with_lupa(scripts: list[Script]) -> list[str]:
    """Syntax errors, and globals that .luacheckrc does not list."""
    lua = LuaRuntime(encoding=None, register_eval=False)
    allowed = allowed_globals(lua)
    dump = lua.eval(b"string.dump")
    complaints = []
    for script in scripts:
        try:
            function = lua.compile(script.source.encode())
        except LuaError as error:
            complaints.append(syntax_complaint(script, error.args[0].decode()))
            continue
        for line, name, writes in globals_used(dump(function)):
            place = script.locate(line + 1)
            if writes:
                complaints.append(f"{place}: global {name} is set")
            elif name not in allowed:
                complaints.append(f"{place}: global {name} does not exist")
    return complaints


def allowed_globals(lua: LuaRuntime) -> set[str]:
    """The `read_globals` of .luacheckrc, which is a Lua program."""
    lua.execute(CONFIG.read_bytes())
    return {bytes(name).decode() for name in lua.globals()[b"read_globals"].values()}


def syntax_complaint(script: Script, error: str) -> str:
    """A compiler's message, moved to the source file."""
    match = LINE_OF_COMPILER.search(error)
    if match is None:
        return f"lua/{script.name}.lua: {error}"
    return f"{script.locate(int(match['line']) + 1)}: {match['rest']}"


def globals_used(bytecode: bytes) -> Iterator[tuple[int, str, bool]]:
    """Line, name and whether it is written, of each use of a global in a Lua 5.1 chunk."""
    return Chunk(bytecode).function()


class Chunk:
    """A reader of Lua 5.1 bytecode on a 64-bit little-endian machine (lundump.c)."""

    def __init__(self, data: bytes) -> None:
        """Refuses bytecode of another format, so that it is never misread."""
        if data[:12] != b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00":
            raise SystemExit("lint: this machine's Lua bytecode is not known; install luacheck")
        self._data = data
        self._at = 12

    def function(self) -> Iterator[tuple[int, str, bool]]:
        """The uses of globals in the function that starts here, and in the ones inside it."""
        self._string()
        self._at += 12  # lines of definition, and four single bytes
        code = self._integers()
        constants = [self._constant() for _ in range(self._integer())]
        inner = [use for _ in range(self._integer()) for use in self.function()]
        lines = self._integers()
        self._skip_names()
        for instruction, line in zip(code, lines, strict=True):
            operation = instruction & 0x3F
            if operation in {GETGLOBAL, SETGLOBAL}:
                yield line, constants[instruction >> 14], operation == SETGLOBAL
        yield from inner

    def _integer(self) -> int:
        (value,) = struct.unpack_from("<I", self._data, self._at)
        self._at += 4
        return int(value)

    def _integers(self) -> list[int]:
        return [self._integer() for _ in range(self._integer())]

    def _string(self) -> str:
        (size,) = struct.unpack_from("<Q", self._data, self._at)
        start = self._at + 8
        self._at = start + size
        return self._data[start : self._at].rstrip(b"\0").decode()

    def _constant(self) -> str:
        kind = self._data[self._at]
        self._at += 1
        if kind == 4:
            return self._string()
        self._at += {0: 0, 1: 1, 3: 8}[kind]  # nil, boolean, number
        return ""

    def _skip_names(self) -> None:
        for _ in range(self._integer()):  # local variables and the code they live in
            self._string()
            self._at += 8
        for _ in range(self._integer()):  # upvalues
            self._string()


if __name__ == "__main__":
    sys.exit(main())
