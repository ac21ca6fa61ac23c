"""Lint the Lua scripts as the server gets them: composed, with their includes.

Each script is written to build/lua and checked by luacheck, by the rules of .luacheckrc. Complaints
name the file and line of the source, not of the composed text.
"""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from rqretry.core.errors import ScriptError
from rqretry.protocol.scripts import Script, ScriptLibrary

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "lua"
CONFIG = ROOT / ".luacheckrc"
LINE_OF_LUACHECK = re.compile(r"(?P<file>[^:\s]+\.lua):(?P<line>\d+):(?P<rest>.*)")
UNUSED_FUNCTION = "(W211) unused function"
MISSING = (
    "luacheck is not installed: `apt-get install lua-check`, `brew install luacheck` or"
    " `luarocks install luacheck`"
)


def main() -> int:
    """Compose and check every script; 1 if there is a complaint."""
    if not shutil.which("luacheck"):
        print(MISSING)
        return 1
    try:
        library = ScriptLibrary()
        scripts = [library.get(name) for name in library.names()]
    except ScriptError as error:
        print(error)
        return 1
    write(scripts)
    complaints = complaints_of(scripts)
    for complaint in complaints:
        print(complaint)
    print(f"{len(scripts)} Lua scripts checked, {len(complaints)} complaints")
    return 1 if complaints or not scripts else 0


def write(scripts: list[Script]) -> None:
    """Write the composed scripts to build/lua."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    for script in scripts:
        (BUILD / f"{script.name}.lua").write_text(script.source, encoding="utf-8")


def complaints_of(scripts: list[Script]) -> list[str]:
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


if __name__ == "__main__":
    sys.exit(main())
