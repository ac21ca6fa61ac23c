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
if version <= tonumber(call('HGET', config, 'version') or 0) then
  return 0
end
call('HSET', config, 'version', version, unpack(ARGV, 2))
call('ZADD', wake, 0, '1')
return 1
