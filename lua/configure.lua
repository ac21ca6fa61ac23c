local call = redis.call
--[[ configure.lua: copy a group's configuration into one partition; newer wins

  As with a route (subscribe.lua), what was read under another incarnation of the data is not taken.

  FLAGS  allow-oom
  KEYS   meta config wake
  ARGV   here version, then field and value of each setting
  REPLY  0 (the partition has this version, or a newer one), or the incarnation, where it is another one
  COST   O(fields); 5 commands
]]
-- @include incarnation
-- @bind

local incarnate = incarnation()
if incarnate ~= here then
  return incarnate
end
call('HSETNX', meta, 'mark', 0)
local before = tonumber(call('HGET', config, 'version') or 0)
if version <= before then
  return 0
end
call('HSET', config, 'version', version, unpack(ARGV, 3))
if before > 0 then -- nobody waits yet for what a new group has
  call('ZADD', wake, 0, '1')
end
return 0
