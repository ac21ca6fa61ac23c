"""Lua that tests link into the scripts: a virtual clock, declared keys, counted and cut calls.

Every other line of a script stays what production runs (see ScriptLibrary).
"""

from rqretry.protocol.scripts import ScriptLibrary
from rqretry.testing.clock import NEVER_FULL, NO_INCARNATION, virtual_clock

CLOCK_KEY = "rqretry:virtual-clock"
"""Milliseconds. Tests set it; the scripts read it in place of TIME."""

VIRTUAL_CLOCK = virtual_clock(f"'{CLOCK_KEY}'")
VIRTUAL = {
    "clock": VIRTUAL_CLOCK, "incarnation": NO_INCARNATION, "nearly_full": NEVER_FULL
}  # fmt: skip
"""What takes the place of includes."""

# On a cluster a script may touch the keys of one slot only, so the clock lies in the slot of the
# partition: its key ends with the hash tag of KEYS[1]. It is the one key that is not declared.
CLOCK_IN_SLOT = f"""
local function wall_ms()
  return tonumber(undeclared('GET', '{CLOCK_KEY}:' .. string.match(KEYS[1], '{{.-}}')))
end
"""

DECLARED_KEYS = """
local undeclared, declared = redis.call, {}
for _, key in ipairs(KEYS) do
  declared[key] = true
end
local key_counts = { TIME = 0, RENAME = 2, LMOVE = 2 }
local redis = {
  call = function(command, ...)
    for i = 1, key_counts[command] or 1 do
      local key = select(i, ...)
      if not declared[key] then
        error('undeclared key in ' .. command .. ': ' .. tostring(key))
      end
    end
    return undeclared(command, ...)
  end,
}
"""
"""A prelude: `redis.call` refuses a key that is not in KEYS."""

CALLS_KEY = "rqretry:calls"
CUT_KEY = "rqretry:cut-at"

COUNTED_CALL = f"""
local function call(...)
  redis.call('INCR', '{CALLS_KEY}')
  return redis.call(...)
end
"""

WORK_KEY = "rqretry:work"

MEASURED_CALL = f"""
local function measure(value)
  if type(value) ~= 'table' then
    return 1, #tostring(value)
  end
  local elements, bytes = 0, 0
  for i = 1, #value do
    local more, longer = measure(value[i])
    elements, bytes = elements + more, bytes + longer
  end
  return elements, bytes
end
local function call(command, key, ...)
  local freed, searched, reply = 0, 0, nil
  if command == 'LPOS' or command == 'LREM' then
    local most = select('#', ...) > 2 and select(2, ...) == 'MAXLEN' and select(3, ...)
    searched = math.min(redis.call('LLEN', key), tonumber(most or math.huge))
  end
  if command == 'HDEL' and string.find(key, ':bodies$') then
    for _, id in ipairs({{ ... }}) do
      freed = freed + (redis.call('HGET', string.gsub(key, 'bodies$', 'sizes'), id) or 0)
    end
  end
  if key then
    reply = redis.call(command, key, ...)
  else
    reply = redis.call(command)
  end
  local elements, bytes = measure({{ reply, ... }})
  redis.call('HINCRBY', '{WORK_KEY}', 'commands', 1)
  redis.call('HINCRBY', '{WORK_KEY}', 'elements', elements)
  redis.call('HINCRBY', '{WORK_KEY}', 'bytes', bytes)
  redis.call('HINCRBY', '{WORK_KEY}', 'freed', freed)
  redis.call('HINCRBY', '{WORK_KEY}', 'searched', searched)
  return reply
end
"""
"""What scripts that write make the server do, in WORK_KEY; `sizes` has the sizes of bodies."""

_WRITES = "^H?SET ADD$ DEL$ PUSH$ REM$ INCRBY$"


def _failing_call(word: str, condition: str, *, writes: bool = False) -> str:
    counts = " or ".join(f"string.find(command, '{one}')" for one in _WRITES.split())
    return f"""
local calls, fail_at = 0, tonumber(redis.call('GET', '{CUT_KEY}') or '0')
local function call(command, ...)
  if {counts if writes else "true"} then
    calls = calls + 1
    if {condition} then
      error('{word}')
    end
  end
  return redis.call(command, ...)
end
"""


CUT_CALL = _failing_call("cut", "calls >= fail_at and fail_at > 0")
"""From call number CUT_KEY on all fail, also those that would undo: what was written stays."""

REFUSED_CALL = _failing_call("refused", "calls == fail_at")
"""Call number CUT_KEY fails and no other, so that a script may undo what it has written."""

CUT_WRITE = _failing_call("cut", "calls >= fail_at and fail_at > 0", writes=True)
"""The same as CUT_CALL, but only calls that write count: a cut elsewhere leaves nothing else."""


def virtual_time() -> ScriptLibrary:
    """The scripts on the virtual clock."""
    return ScriptLibrary(overrides=VIRTUAL)


def virtual_time_declared_keys() -> ScriptLibrary:
    """The same on a cluster; every key touched must be declared."""
    return ScriptLibrary(overrides={**VIRTUAL, "clock": CLOCK_IN_SLOT}, prelude=DECLARED_KEYS)


def counted() -> ScriptLibrary:
    """The scripts on the virtual clock, counting their Redis commands in CALLS_KEY."""
    return ScriptLibrary(overrides=VIRTUAL, call_override=COUNTED_CALL)


def measured() -> ScriptLibrary:
    """The same, with what the commands pass and answer, and the bodies that they free."""
    return ScriptLibrary(overrides=VIRTUAL, call_override=MEASURED_CALL)


def cut() -> ScriptLibrary:
    """The scripts on the virtual clock, stopping at the call that CUT_KEY names."""
    return ScriptLibrary(overrides=VIRTUAL, call_override=CUT_CALL)


def refused() -> ScriptLibrary:
    """The scripts on the virtual clock, of which the call that CUT_KEY names is refused."""
    return ScriptLibrary(overrides=VIRTUAL, call_override=REFUSED_CALL)


def cut_writes() -> ScriptLibrary:
    """The same, stopping at the write that CUT_KEY names."""
    return ScriptLibrary(overrides=VIRTUAL, call_override=CUT_WRITE)
