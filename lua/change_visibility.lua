local call = redis.call
--[[ change_visibility.lua: inflight -> inflight with a new receipt | ready (duration 0)

  A simple consumer moves the deadline of a live lease, counting from now; the receipt it held is
  stale from here on. The attempt does not change. Duration 0 gives the message back at once.

  FLAGS  allow-oom
  KEYS   meta config ready retry inflight attempts dead wake bodies pending events counters
  ARGV   group worker, then id, lease_no and duration_ms of each message
  REPLY  STALE | GONE | the new lease_no of each message
  COST   O(messages * log inflight); 12 commands, 3 more for a message that is not OK, 2 with
         max_inflight
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include fence
-- @include wake_if_below_limit

-- @bind keys
local FIRST, STRIDE = 3, 3

local settings = call('HMGET', config, 'byte', 'max_inflight', 'floor')
local byte, most = settings[1] or '', tonumber(settings[2] or '')
local clock = read_clock(meta)
keys.floor = tonumber(settings[3]) or 1
local ids, verdicts, entries, deadlines = fence(keys, byte, FIRST, STRIDE, true)
local done, notes, written, moved, back, back_retry, earliest = {}, {}, {}, {}, {}, {}, nil
local function change_each()
  for i, id in ipairs(ids) do
    if verdicts[i] == 'OK' and tonumber(deadlines[i]) <= clock.now then
      verdicts[i] = 'STALE'
    elseif verdicts[i] == 'OK' then
      local duration_ms = tonumber(ARGV[FIRST + (i - 1) * STRIDE + 2])
      local lease_no, attempt, expiries, postpones = read_entry(entries[i], keys.floor)
      local n, due = #done + 1, clock.now + duration_ms
      done[n], notes[n], verdicts[i] = id, attempt .. ',' .. due, tostring(lease_no + 1)
      -- The receipt answered for duration 0 names no lease; the next lease must not have its number.
      local next_no = duration_ms > 0 and lease_no + 1 or lease_no + 2
      written[2 * n - 1], written[2 * n] = id, spell_entry(next_no, attempt, expiries, postpones)
      if duration_ms > 0 then
        moved[#moved + 1], moved[#moved + 2] = due, id
        earliest = math.min(earliest or due, due)
      else
        local lane = attempt > 1 and back_retry or back
        table.insert(lane, 1, id)
      end
    end
  end
end

local function write()
  local first = call('ZRANGE', inflight, 0, 0, 'WITHSCORES')[2]
  local news = earliest and (not first or earliest < tonumber(first))
  if #back > 0 then
    news = call('LPUSH', ready, unpack(back)) == #back or news
  end
  if #back_retry > 0 then
    news = call('LPUSH', retry, unpack(back_retry)) == #back_retry or news
  end
  call('HSET', attempts, unpack(written))
  if #moved > 0 then
    call('ZADD', inflight, 'XX', unpack(moved))
  end
  if #back + #back_retry > 0 then
    for _, id in ipairs(back_retry) do
      back[#back + 1] = id
    end
    call('ZREM', inflight, unpack(back))
    wake_if_below_limit(most, inflight, wake, #back)
  end
  if news then
    call('ZADD', wake, 0, '1')
  end
  call('HINCRBY', counters, 'change:' .. group, #done)
  append_history(clock, meta, events, 'change', group, worker, done, table.concat(notes, ' '), '')
end

change_each()
if #done > 0 then
  write()
end
return verdicts
