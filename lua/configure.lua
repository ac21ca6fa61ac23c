local call = redis.call
--[[ configure.lua: copy a group's configuration into one partition; newer wins

  FLAGS  allow-oom
  KEYS   meta config wake
  ARGV   version, then field and value of each setting
  REPLY  1 written, 0 the partition has this version or a newer one
  COST   O(fields); 4 commands
]]
-- @bind

call('HSETNX', meta, 'mark', 0)
local before = tonumber(call('HGET', config, 'version') or 0)
if version <= before then
  return 0
end
call('HSET', config, 'version', version, unpack(ARGV, 2))
if before > 0 then -- nobody waits yet for what a new group has
  call('ZADD', wake, 0, '1')
end
return 1
