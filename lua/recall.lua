local call = redis.call
--[[ recall.lua: scheduled and not due -> gone

  Whoever published a message with a delay takes it back, and may publish under its id again. Once it is
  due it belongs to the groups, whether or not anybody has delivered it yet.

  FLAGS  allow-oom
  KEYS   meta scheduled bodies big pending ids_key id_expiry events counters keyed
         message_keys
  ARGV   worker id member (the id, or the id, a blank and the message's tag)
  REPLY  OK | LATE (it is due, was never scheduled, or its id, chosen by the caller, is done with) | GONE
  COST   O(log scheduled); 14 commands, 1 more where ids of callers are known, 3 more where it has message
         keys
]]
-- @include clock
-- @include logical
-- @include history
-- @include message_keys
-- @include forget

-- @bind keys

local clock = read_clock(meta)
local due = call('ZSCORE', scheduled, member)
if not due or tonumber(due) <= time_of(clock, due) then
  local known = call('HEXISTS', keys.bodies, id) + call('HEXISTS', keys.ids_key, id) > 0
  return known and 'LATE' or 'GONE' -- removed by hand, it is free
end
local last = forget(keys, '', clock.now, { id })
call('ZREM', scheduled, member)
free_ids(keys, last)
call('HINCRBY', counters, 'recall', 1)
append_history(clock, meta, events, 'recall', '', worker, { id }, '', '')
return 'OK'
