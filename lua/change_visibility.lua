local call = redis.call
--[[ change_visibility.lua: inflight -> inflight with a new receipt | ready | dead (duration 0)

  A simple consumer moves the deadline of a live lease, counting from now; the receipt it held is
  stale from here on. Duration 0 ends the delivery: it is a failed attempt with cause `given_back`, and
  the message is ready at once, or dead if that was its last one.

  FLAGS  allow-oom
  KEYS   meta config retry inflight attempts failures dead deaths due wake events counters bodies pending
         ready order heads message_groups fingerprints, then levels
  ARGV   group worker duration_ms, then id and lease_no of each message
  REPLY  STALE | GONE | the new lease_no of each message; now_ms; the ids of those that are dead
  COST   O(messages * log inflight); 8 commands, 22 with duration 0, 3 more for a message that is not OK
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
-- @include failures
-- @include wake_if_below_limit
-- @include message_group_order
-- @include drop_given_up
-- @include undo
-- @include restore_states

-- @bind keys

local policy = read_policy(config)
local clock = read_clock(meta)
local ordered, byte = policy.ordered, policy.byte
-- @include ordering
-- @include end_deliveries
keys.floor = policy.floor
local ids, verdicts, entries, deadlines = fence(keys, byte, 4, 2, true)
local done, before, notes, written, moved = {}, {}, {}, {}, {}
local deadline = clock.now + duration_ms
for i, id in ipairs(ids) do
  if verdicts[i] == 'OK' and tonumber(deadlines[i]) <= clock.now then
    verdicts[i] = 'STALE'
  elseif verdicts[i] == 'OK' then
    local lease_no, attempt, expiries, postpones = read_entry(entries[i], policy.floor)
    local n = #done + 1
    done[n], before[n], notes[n] = id, entries[i] or false, attempt .. ',' .. deadline
    verdicts[i] = tostring(lease_no + 1)
    written[2 * n - 1], written[2 * n] = id, spell_entry(lease_no + 1, attempt, expiries, postpones)
    moved[2 * n - 1], moved[2 * n] = deadline, id
  end
end

local function move()
  local first = call('ZRANGE', inflight, 0, 0, 'WITHSCORES')[2]
  call('HSET', attempts, unpack(written))
  call('ZADD', inflight, 'XX', unpack(moved))
  if deadline < tonumber(first) then
    call('ZADD', wake, 0, '1')
  end
  call('HINCRBY', counters, 'change:' .. group, #done)
  append_history(clock, meta, events, 'change', group, worker, done, table.concat(notes, ' '), '')
end

local newly_dead = {}
if #done > 0 and duration_ms > 0 then
  move()
elseif #done > 0 then
  -- The receipt that is answered names no lease: the next one must not have its number.
  local how = { verb = 'fail', cause = 'given_back', numbers = 2, expiries = 0, named = true }
  newly_dead = end_deliveries(done, before, how)
end
return { verdicts, clock.now, newly_dead }
