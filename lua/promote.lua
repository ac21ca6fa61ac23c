local call = redis.call
--[[ promote.lua: waiting_retry and due -> ready (retry lane)

  The index says which levels have something due; it may say so too early, never too late: it is
  lowered before a level is written and raised after the level is emptied.

  FLAGS  allow-oom
  KEYS   meta retry due wake events counters, then the delay level keys
  ARGV   group worker limit
  REPLY  now_ms, messages promoted, next_due_ms (from now; '' for none)
  COST   O(limit * log waiting); 10 commands and 4 a due level
]]
-- @include clock
-- @include logical
-- @include history

local meta, retry, due, wake, events, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local levels = { unpack(KEYS, 7) }
local group, worker, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local clock = read_clock(meta)
local ids = {}

local function promote_level(level, most)
  local members = call('ZRANGEBYSCORE', level, '-inf', clock.now, 'LIMIT', 0, most)
  if #members > 0 then
    call('RPUSH', retry, unpack(members))
    call('ZREM', level, unpack(members))
    for _, id in ipairs(members) do
      ids[#ids + 1] = id
    end
  end
  return call('ZRANGE', level, 0, 0, 'WITHSCORES')[2]
end

for _, number in ipairs(call('ZRANGEBYSCORE', due, '-inf', clock.now)) do
  local level = levels[tonumber(number)]
  if level and #ids < limit then
    local next_due = promote_level(level, limit - #ids)
    if next_due then
      call('ZADD', due, next_due, number)
    else
      call('ZREM', due, number)
    end
  end
end
if #ids > 0 then
  call('HINCRBY', counters, 'promote:' .. group, #ids)
  if call('LLEN', retry) == #ids then
    call('ZADD', wake, 0, '1')
  end
  append_history(clock, meta, events, 'promote', group, worker, ids, '', '')
end
local next_due = call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
return { clock.now, #ids, next_due and math.max(0, math.ceil(next_due - clock.now)) or '' }
