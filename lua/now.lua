local call = redis.call
--[[ now.lua: read only; the server's time, as the namespace's slot keeps it

  FLAGS  no-writes
  KEYS   meta
  ARGV   -
  REPLY  now_ms
  COST   O(1); 2 commands
]]
-- @include clock
-- @include logical

-- @bind
return read_clock(meta).now
