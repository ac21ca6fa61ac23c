local call = redis.call
--[[ poll.lua: read only; is there anything to lease in these places, and when is something due

  An idle process looks at all its places at once, which costs less than a lease of nothing from each.
  Its places are of several partitions, so on a cluster it looks by leasing. A simple consumer asks about
  each place by itself, for whose turn it is.

  FLAGS  no-writes
  KEYS   meta config ready retry inflight due scheduled, then those of each other place
  ARGV   -
  REPLY  of each place now_ms, next_due_ms, next_deadline_ms, next_scheduled_ms (from now; '' for none), and
         how many are ready and how many retries; or nothing if the partition does not know the group
  COST   O(places); 8 commands a place
]]
-- @include clock
-- @include logical

local KEYS_OF_A_PLACE = 7

local function remaining(key, clock)
  return ms_until(clock, call('ZRANGE', key, '0', '0', 'WITHSCORES')[2])
end

local answers = {}
for at = 1, #KEYS, KEYS_OF_A_PLACE do
  local meta, config, ready, retry = KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
  local answer = {}
  if call('HEXISTS', config, 'version') == 1 then
    local clock = read_clock(meta)
    answer = {
      clock.now, remaining(KEYS[at + 5], clock), remaining(KEYS[at + 4], clock), remaining(KEYS[at + 6], clock),
      call('LLEN', ready), call('LLEN', retry),
    }
  end
  answers[#answers + 1] = answer
end
return answers
