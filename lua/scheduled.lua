local call = redis.call
--[[ scheduled.lua: read only; what is scheduled and due in one partition

  Where a group of the topic takes only some tags, whoever delivers looks at the members first, says
  for each which groups want it, and passes them to deliver.lua.

  FLAGS  no-writes
  KEYS   meta scheduled
  ARGV   limit
  REPLY  members that are due, next_scheduled_ms (from now; '' for none)
  COST   O(log scheduled + limit); 4 commands
]]
-- @include clock
-- @include logical
-- @include due_members

-- @bind

local clock = read_clock(meta)
local due = due_members(clock, scheduled, limit)
local first = call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
return { due, ms_until(clock, first) }
