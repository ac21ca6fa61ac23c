"""The scripts with a change: a copy of them, in which every Redis call passes the case."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.meta.mutation.case import LuaCall, LuaChange, LuaFlags, LuaLine

ROOT = Path(__file__).resolve().parents[3]
CALL_LINE = "local call = redis.call\n"
_FLAGS = re.compile(r"^(\s*FLAGS +)\S+$", re.MULTILINE)

_PATTERNS = {"delay": ":delay:%d+$", "lane": ":lane:"}

_HELPERS = """
local function at(list, item)
  for i = 1, #list do
    if list[i] == item then return i end
  end
end
local function each_pair(args, change)
  for i = 1, #args - 1, 2 do args[i + 1] = change(args[i + 1], args[i]) end
end
local function each_score(args, change)
  local first = 1
  while not tonumber(args[first]) do first = first + 1 end
  for i = first, #args - 1, 2 do args[i] = change(tonumber(args[i]), args[i + 1]) end
end
local function state(text, change)
  local l, a, e, p = string.match(text or '1:1:0:0', '^(%d+):(%d+):(%d+):(%d+)$')
  return table.concat({ change(tonumber(l), tonumber(a), tonumber(e), tonumber(p)) }, ':')
end
local function backwards(digits)
  return string.format('%016d', 999999 - tonumber(digits))
end
local function argument_behind(value)
  local found = at(ARGV, value)
  return found and ARGV[found + 1]
end
"""

_WRAPPED = """
call = (function(original)
  %(helpers)s
  return function(command, ...)
    local key = (...)
    if command == '%(command)s' and string.find(key or '', '%(pattern)s') then
      local args = { select(2, ...) }
      local instead = (function() %(send)s end)()
      if instead ~= nil then return instead end
      local answer = original(command, key, unpack(args))
      %(answer)s
      return answer
    end
    return original(command, ...)
  end
end)(call)
"""


def changed_scripts(changes: Sequence[LuaChange], folder: Path) -> Path:
    """A copy of the scripts with these changes.

    Raises:
        LookupError: A script that is named does not exist.
    """
    scripts = folder / "lua"
    shutil.copytree(ROOT / "lua", scripts)
    for change in changes:
        for path in _files(change, scripts):
            path.write_text(_changed(change, path.read_text(encoding="utf-8")), encoding="utf-8")
    return scripts


def _files(change: LuaChange, scripts: Path) -> list[Path]:
    names = change.scripts if isinstance(change, LuaCall) else (change.script,)
    if not names:
        return sorted(scripts.glob("*.lua"))
    for name in names:
        if not (scripts / f"{name}.lua").exists():
            raise LookupError(f"there is no script {name}")
    return [scripts / f"{name}.lua" for name in names]


def _changed(change: LuaChange, text: str) -> str:
    if isinstance(change, LuaFlags):
        return _FLAGS.sub(rf"\g<1>{change.flags}", text, count=1)
    added = f"{change.line}\n" if isinstance(change, LuaLine) else wrapped(change)
    assert CALL_LINE in text
    return text.replace(CALL_LINE, f"{CALL_LINE}{added}", 1)


def wrapped(change: LuaCall) -> str:
    """Lua on one line that puts a change around `call`."""
    pattern = _PATTERNS.get(change.role, f":{change.role}$")
    text = _WRAPPED % {
        "helpers": _HELPERS, "command": change.command, "pattern": pattern,
        "send": change.send, "answer": change.answer,
    }  # fmt: skip
    return " ".join(text.split()) + "\n"
