local call = redis.call
--[[ configure.lua: copy a group's configuration into one partition; newer wins

  FLAGS  allow-oom
  KEYS   meta config wake
  ARGV   version, then field and value pairs
  REPLY  1 written, 0 the partition has this version or a newer one
  COST   O(fields); 4 commands
]]
local meta, config, wake = KEYS[1], KEYS[2], KEYS[3]
local version = tonumber(ARGV[1])

call('HSETNX', meta, 'mark', 0)
if version <= tonumber(call('HGET', config, 'version') or 0) then
  return 0
end
call('HSET', config, 'version', version, unpack(ARGV, 2))
call('ZADD', wake, 0, '1')
return 1
