local call = redis.call
--[[ stats.lua: read only; how many messages of one group are where, in one partition

  What is due counts as ready, whether or not anybody has moved it yet, so that a system scaled to
  zero still reports its true lag.

  FLAGS  no-writes
  KEYS   meta config ready retry inflight dead scheduled backlog counters bodies order heads message_groups
         ids_key, then levels
  ARGV   -
  REPLY  now_ms, ready, retry, inflight, overdue, dead, scheduled, backlog, bodies, oldest ready id,
         paused, per level {count, due already, next_due_ms} (nothing where none has any), counters as name and
         value, bytes of history, max_inflight and rate ('' for none), messages blocked behind another of their message
         group, messages that have one, state, id and end of the body ('' unless its id was chosen) of the
         first of each list and sorted set, which is about the oldest there, and for how many ms the first
         retry, lease or scheduled message that is due has been, and nobody has moved it (0 for none)
  COST   O(levels * log waiting); 21 commands, 3 a level where anything waits, 2 for each id that was chosen, 2 where
         messages are blocked
]]
-- @include clock
-- @include logical

-- @bind

local TAIL, ALL_FIELDS, LOOKED_AT, DIGITS = 9, 0x97, 200, 16 -- of a body, and of the order
local NONE = { 0, 0, '' }

local clock, oldest = read_clock(meta), {}
-- An id that was chosen says nothing of its age; its message does, at the end.
local some_chosen = call('EXISTS', ids_key) == 1
local function note_oldest(state, id)
  local body = some_chosen and id and call('HEXISTS', ids_key, id) == 1 and call('HGET', bodies, id)
  if id then
    oldest[#oldest + 1] = { state, id, body and string.byte(body) == ALL_FIELDS and string.sub(body, -TAIL) or '' }
  end
end

local late = 0
local function note_late(score)
  late = math.max(late, score and clock.now - score or 0)
end

local function note_first(state, key)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  note_oldest(tonumber(first[2] or 0) > clock.now and state or 'retry', first[1])
  note_late(first[2])
  return first[2]
end

-- The lowest number among the first messages of the order that are not out.
local function note_blocked()
  local lowest, found, names = nil, nil, {}
  local page = call('ZRANGE', order, 0, LOOKED_AT - 1)
  for i, member in ipairs(page) do
    names[i] = string.match(member, '^%Z+')
  end
  local out = #page > 0 and call('HMGET', heads, unpack(names)) or {}
  for i, member in ipairs(page) do
    local at = #names[i] + 2
    local digits, id = string.sub(member, at, at + DIGITS - 1), string.sub(member, at + DIGITS)
    if id ~= out[i] and (not lowest or digits < lowest) then
      lowest, found = digits, id
    end
  end
  note_oldest('blocked', found)
end

local first_ready = call('LINDEX', ready, 0)
note_oldest('ready', first_ready)
note_oldest('retry', call('LINDEX', retry, 0))
note_first('inflight', inflight)
local blocked = call('ZCARD', order) - call('HLEN', heads)
if blocked > 0 then
  note_blocked()
end
local waiting = {}
if call('EXISTS', unpack(levels)) > 0 then -- of most groups none waits
  for i, level in ipairs(levels) do
    local first = note_first('waiting_retry', level)
    waiting[i] = first and { call('ZCARD', level), call('ZCOUNT', level, '-inf', clock.now), first } or NONE
  end
end
note_late(call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2])
local settings = call('HMGET', config, 'paused', 'max_inflight', 'rate', 'view', 'fed_at')
-- What a group that consumes dead letters has not looked at yet is ready for it.
local view = settings[4] == '1'
local unfed = view and call('ZCOUNT', dead, '(' .. (settings[5] or '-1'), '+inf') or 0
return {
  clock.now, call('LLEN', ready) + unfed, call('LLEN', retry), call('ZCARD', inflight),
  call('ZCOUNT', inflight, '-inf', clock.now), view and 0 or call('ZCARD', dead), call('ZCARD', scheduled),
  call('LLEN', backlog), call('HLEN', bodies), first_ready or '',
  settings[1] or '0', waiting, call('HGETALL', counters), clock.bytes, settings[2] or '', settings[3] or '',
  blocked, call('HLEN', message_groups), oldest, late,
}
