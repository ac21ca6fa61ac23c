local call = redis.call
--[[ scan_group.lua: read only; one page of what a group holds in one list or sorted set

  FLAGS  no-writes
  KEYS   meta location (the list or sorted set) attempts failures
  ARGV   structure ('list' | 'zset') offset count
  REPLY  now_ms, total, ids, scores ('' in a list), entries, failure records ('' for none)
  COST   O(offset + count) in a list, O(log size + count) in a sorted set; 6 commands
]]
-- @include clock
-- @include logical
-- @include texts

-- @bind

local clock = read_clock(meta)
local ids, scores, total = {}, {}
if structure == 'list' then
  total, ids = call('LLEN', location), call('LRANGE', location, offset, offset + count - 1)
else
  total = call('ZCARD', location)
  local page = call('ZRANGE', location, offset, offset + count - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    ids[#ids + 1], scores[#scores + 1] = page[i], page[i + 1]
  end
end
return { clock.now, total, ids, scores, texts(attempts, ids), texts(failures, ids) }
