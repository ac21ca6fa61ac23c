local call = redis.call
--[[ promote.lua: waiting_retry and due -> ready (retry lane)

  An operator can promote what is not due yet: everything, one level, or some messages of a level.
  The index says which levels have something due; it may say so too early, never too late: it is
  lowered before a level is written and raised after the level is emptied. In an ordered group a head
  goes on, and a message that was sent back with a delay goes to the end of its message group.

  FLAGS  allow-oom
  KEYS   meta retry due wake events counters config order heads message_groups, then levels
  ARGV   group worker limit expected_ms (the time by the caller's own clock, or '') hold_ms upto ('' for what
         is due now, '+inf' for all) only (one level, '' for every one), then ids to take from that level
         (none: any)
  REPLY  now_ms, messages promoted, next_due_ms (from now; '' for none)
  COST   O(limit * log waiting); 10 commands and 4 a due level
]]
-- @include clock
-- @include logical
-- @include jump
-- @include history

-- What ordered groups need is made only where a message ever had a message group.
local function load_ordering()
-- @include ownership
-- @include message_group_order
  return heads_and_others, push_in_order
end

-- @bind keys
local chosen = { unpack(ARGV, 8) }

local clock = read_clock(meta, expected_ms)
local function held_for()
  return upto == '' and #chosen == 0 and clock.offset == 0 and held_back(clock, meta, expected_ms, hold_ms)
end
local hold = held_for()
if hold then
  return { clock.now, 0, hold }
end
local function read_settings()
  return unpack(clock.order and call('HMGET', KEYS[7], 'ordered', 'byte') or {})
end
local ordered, byte = read_settings()
-- @include ordering
local ids, filled = {}, false
upto = upto == '' and clock.now or upto

local function members_of(level, most)
  if #chosen == 0 then
    return call('ZRANGEBYSCORE', level, '-inf', upto, 'LIMIT', 0, most)
  end
  local due_times, here, seen = call('ZMSCORE', level, unpack(chosen)), {}, {}
  for i, id in ipairs(chosen) do
    here[#here + 1] = due_times[i] and not seen[id] and id or nil
    seen[id] = true
  end
  return here
end

local function push(members)
  local first, others, push_others = members, {}, nil
  if keys.ordered == '1' then
    local divide, push_in_order = load_ordering()
    first, others = divide(keys, members)
    push_others = push_in_order
  end
  if #first > 0 then
    filled = call('RPUSH', retry, unpack(first)) == #first or filled
  end
  if #others > 0 then
    filled = push_others(keys, retry, others, {}) or filled
  end
end

local function promote_level(level, most)
  local members = members_of(level, most)
  if #members > 0 then
    push(members)
    if #chosen > 0 then
      call('ZREM', level, unpack(members))
    else -- they are its first
      call('ZREMRANGEBYRANK', level, '0', #members - 1)
    end
    for i = 1, #members do
      ids[#ids + 1] = members[i]
    end
  end
  return call('ZRANGE', level, '0', '0', 'WITHSCORES')[2]
end

for _, number in ipairs(only == '' and call('ZRANGEBYSCORE', due, '-inf', upto) or { only }) do
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
  if filled then
    call('ZADD', wake, '0', '1')
  end
  append_history(clock, meta, events, 'promote', group, worker, ids, '', '')
end
local next_due = call('ZRANGE', due, '0', '0', 'WITHSCORES')[2]
if #ids == 0 and next_due then
  keep_time(clock, meta, true)
end
return { clock.now, #ids, ms_until(clock, next_due) }
