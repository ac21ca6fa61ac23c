local call = redis.call
--[[ expire.lua: inflight past its deadline -> ready (the first time) | waiting_retry | dead

  The worker died, hangs or is cut off. Anybody may run this for anybody, any number at once. The
  attempt counts. The first expiry of a message makes it ready at once, since a crash is rarely the
  message's fault; every further one waits by the ladder, since it may be. A simple consumer's
  message is always ready at once: its deadline is its retry interval.

  When the server's time jumped forward (more than JUMP_MS beyond what the caller expected), leases
  look overdue that are not: nothing expires for hold_ms (include/jump.lua).

  FLAGS  allow-oom
  KEYS   meta config retry inflight attempts failures dead deaths due wake events counters bodies pending
         ready order heads message_groups fingerprints, then levels
  ARGV   group worker limit expected_ms (the time by the caller's own clock; '' on a first look) hold_ms random
  REPLY  OK | HELD, now_ms, messages expired | ms to wait, and behind OK, where any message has expired,
         the ids of those that have no retries left
  COST   O(limit * log inflight); 20 commands, 2 a level and 1 a message, 6 where any is dead, 2 with
         max_inflight
]]
-- @include clock
-- @include logical
-- @include jump
-- @include history
-- @include delivery_state
-- @include policy
-- @include fingerprints
-- @include wait_or_dead_letter
-- @include failures
-- @include wake_if_below_limit
-- @include ownership
-- @include message_group_order
-- @include drop_given_up
-- @include undo
-- @include restore_states

-- @bind keys

local policy = read_policy(config)
local clock = read_clock(meta, expected_ms)
local ordered, byte = policy.ordered, policy.byte
-- @include ordering
-- @include end_deliveries
local now = clock.now
local hold = held_back(clock, meta, expected_ms, hold_ms)
if hold then
  keep_time(clock, meta) -- behind a jump that was noted and came back, time would stand still
  return { 'HELD', now, hold }
end

local overdue = call('ZRANGEBYSCORE', inflight, '-inf', now, 'LIMIT', 0, limit)
if #overdue == 0 or not policy.exists then
  if call('EXISTS', inflight) == 1 then
    keep_time(clock, meta, true)
  end
  return { 'OK', now, 0 }
end

-- Some of these are leftovers of a settle that was cut, and only dropped: messages without a body, dead ones,
-- and those that this group has committed. A group that consumes dead letters (a view) drops those that are
-- no longer dead, and those that it has finished with.
local ids, orphans, committed, leftovers = {}, {}, {}, {}
local function sort_out()
  local owed = call('HLEN', pending) > 0 and call('HMGET', pending, unpack(overdue)) or {}
  local is_dead = call('ZMSCORE', keys.dead, unpack(overdue))
  local marks = policy.view and call('HMGET', keys.deaths, unpack(overdue))
  for i, id in ipairs(overdue) do
    local list = ids
    if call('HEXISTS', bodies, id) == 0 then
      list = orphans
    elseif not owns(policy.byte, owed[i]) then
      list = committed
    end
    if policy.view then
      list = is_dead[i] and marks[i] and ids or committed
    elseif is_dead[i] then
      list = leftovers
    end
    list[#list + 1] = id
  end
end
sort_out()

local function drop(list)
  call('HDEL', failures, unpack(list))
  call('HDEL', attempts, unpack(list))
  if policy.view then
    call('HDEL', keys.deaths, unpack(list))
  end
  call('ZREM', inflight, unpack(list))
end
local function drop_leftovers()
  if #leftovers > 0 then
    finish_in_order(keys, leftovers, {})
    note_fingerprints(keys, leftovers)
    call('ZREM', inflight, unpack(leftovers))
  end
  if #committed > 0 then
    finish_in_order(keys, committed, {})
    drop(committed)
  end
  if #orphans > 0 then
    finish_in_order(keys, orphans, orphans, true)
    call('HDEL', pending, unpack(orphans))
    drop(orphans)
    call('HINCRBY', counters, 'orphan:' .. group, #orphans)
  end
end
drop_leftovers()
if #ids == 0 then
  return { 'OK', now, #overdue }
end

local how = { verb = 'expire', cause = 'expired', numbers = 1, expiries = 1, random = random }
local newly_dead = end_deliveries(ids, call('HMGET', attempts, unpack(ids)), how)
return { 'OK', now, #overdue, newly_dead }
