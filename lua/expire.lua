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
local LINE = '{"c":"expired"}'

local policy = read_policy(config)
local clock = read_clock(meta, expected_ms)
local ordered, byte = policy.ordered, policy.byte
-- @include ordering
local now = clock.now
local hold = held_back(clock, meta, expected_ms, hold_ms)
if hold then
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
    finish_orphans(keys, orphans)
    call('HDEL', pending, unpack(orphans))
    drop(orphans)
    call('HINCRBY', counters, 'orphan:' .. group, #orphans)
  end
end
drop_leftovers()
if #ids == 0 then
  return { 'OK', now, #overdue }
end

local entries, records = call('HMGET', attempts, unpack(ids)), call('HMGET', failures, unpack(ids))
local plan, notes, written, changed, back, newly_dead = new_plan(), {}, {}, {}, {}, {}
local function fail_each()
  for i, id in ipairs(ids) do
    local lease_no, attempt, expiries, postpones = read_entry(entries[i], policy.floor)
    local at_once = policy.kind == 'simple' or expiries == 0
    local note
    if at_once and attempt < policy.max_attempts then
      back[#back + 1], note = id, 'R'
    else
      note = wait_or_dead_letter(plan, policy, now, id, attempt, 'expired', { level = 0, random = random, line = LINE })
    end
    notes[i] = attempt .. ',' .. note
    newly_dead[#newly_dead + 1] = note == 'D' and id or nil
    local next_attempt = note == 'D' and attempt or attempt + 1
    written[2 * i - 1], written[2 * i] = id, spell_entry(lease_no + 1, next_attempt, expiries + 1, postpones)
    changed[2 * i - 1], changed[2 * i] = id, add_failure(records[i], attempt, now, LINE)
  end
end

local pushed, ended = 0, false
local function write()
  local earlier, filled = write_plan(plan, keys, levels, policy.view), false
  if #back > 0 then
    filled, pushed = call('RPUSH', retry, unpack(back)) == #back, #back
  end
  call('HSET', failures, unpack(changed))
  call('HSET', attempts, unpack(written))
  finish_in_order(keys, newly_dead, {})
  drop_given_up(policy, plan, keys.deaths, attempts, failures)
  ended = call('ZREM', inflight, unpack(ids))
  wake_if_below_limit(policy.max_inflight, inflight, wake, #ids)
  call('HINCRBY', counters, 'expire:' .. group, #ids)
  if #plan.dead > 0 then
    call('HINCRBY', counters, (policy.view and 'dropped:' or 'dead:') .. group, #plan.dead / 2)
  end
  if filled or earlier then
    call('ZADD', wake, 0, '1')
  end
  append_history(clock, meta, events, 'expire', group, worker, ids, table.concat(notes, ' '), '')
end

fail_each()
all_or_undo(write, function()
  if not ended then
    restore_states(attempts, ids, entries, written)
    if pushed > 0 then
      call('LTRIM', retry, '0', -1 - pushed)
    end
  end
end)
return { 'OK', now, #overdue, newly_dead }
