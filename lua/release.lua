local call = redis.call
--[[ release.lua: inflight -> ready (head of its own lane) | waiting_retry (postponed)

  Given back, not counted: a message that has not started, one that a stopping worker gives up, one
  that its handler postpones, and one that a simple consumer releases before its deadline. The last
  two are bounded: past the limit the answer is LIMIT and nothing is changed, so that the caller can
  report a failure instead.

  FLAGS  allow-oom
  KEYS   meta config ready retry inflight attempts dead due wake bodies pending events counters deaths, then
         levels
  ARGV   group worker max_postpones times ('' for none), then id, lease_no and delay_ms ('' at once) of each message
  REPLY  OK | STALE | GONE | LIMIT of each message
  COST   O(messages * log inflight); 14 commands and 2 a level, 2 with max_inflight
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include fence
-- @include policy
-- @include fingerprints
-- @include wait_or_dead_letter
-- @include wake_if_below_limit
-- @include undo
-- @include handler_times
-- @include restore_states

-- @bind keys
local FIRST, STRIDE = 5, 3

local policy = read_policy(config)
local clock = read_clock(meta)
keys.floor = policy.floor
local by_hand = policy.kind == 'simple'
local ids, verdicts, entries, deadlines = fence(keys, policy.byte, FIRST, STRIDE, by_hand)
local plan, done, notes, written, heads, retries = new_plan(), {}, {}, {}, {}, {}
local function judge(i, bounded, postpones)
  if verdicts[i] == 'OK' and by_hand and tonumber(deadlines[i]) <= clock.now then
    verdicts[i] = 'STALE'
  elseif verdicts[i] == 'OK' and bounded and postpones >= max_postpones then
    verdicts[i] = 'LIMIT'
  end
end
for i, id in ipairs(ids) do
  local delay_ms = tonumber(ARGV[FIRST + (i - 1) * STRIDE + 2])
  local lease_no, attempt, expiries, postpones = read_entry(entries[i], policy.floor)
  local bounded = by_hand or delay_ms
  judge(i, bounded, postpones)
  if verdicts[i] == 'OK' then
    local n = #done + 1
    done[n], notes[n] = id, attempt .. ',R'
    if delay_ms then
      notes[n] = attempt .. ',' .. wait(plan, policy, clock.now, id, delay_ms).note
    else
      local lane = attempt > 1 and retries or heads
      table.insert(lane, 1, id) -- LPUSH puts the last one first
    end
    postpones = bounded and postpones + 1 or postpones
    written[2 * n - 1], written[2 * n] = id, spell_entry(lease_no + 1, attempt, expiries, postpones)
  end
end
local ended = false
local function write()
  local earlier = write_plan(plan, keys, levels)
  local filled = false
  if #heads > 0 then
    filled = call('LPUSH', ready, unpack(heads)) == #heads
  end
  if #retries > 0 then
    filled = call('LPUSH', retry, unpack(retries)) == #retries or filled
  end
  call('HSET', attempts, unpack(written))
  ended = call('ZREM', inflight, unpack(done))
  wake_if_below_limit(policy.max_inflight, inflight, wake, #done)
  call('HINCRBY', counters, 'release:' .. group, #done)
  if filled or earlier then
    call('ZADD', wake, 0, '1')
  end
  local text = table.concat(notes, ' ')
  append_history(clock, meta, events, 'release', group, worker, done, text, '', times_of(done, ids, times))
end
if #done > 0 then
  all_or_undo(write, function()
    if not ended then
      restore_states(attempts, ids, entries, written)
    end
  end)
end
return verdicts
