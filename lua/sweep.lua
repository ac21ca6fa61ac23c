local call = redis.call
--[[ sweep.lua: upkeep of a partition; forget the caller-given ids whose deduplication window is over

  FLAGS  allow-oom
  KEYS   meta ids id_expiry
  ARGV   limit
  REPLY  ids forgotten
  COST   O(limit * log ids); 5 commands
]]
-- @include clock
-- @include logical

local meta, ids_key, id_expiry = KEYS[1], KEYS[2], KEYS[3]
local limit = tonumber(ARGV[1])

local clock = read_clock(meta)
local over = call('ZRANGEBYSCORE', id_expiry, '-inf', clock.now, 'LIMIT', 0, limit)
if #over > 0 then
  call('HDEL', ids_key, unpack(over))
  call('ZREM', id_expiry, unpack(over))
end
return #over
