local call = redis.call
--[[ configure.lua: copy a group's configuration into one partition; newer wins

  A group that left a topic and came back has another, higher byte there; its version only tells
  copies with the same byte apart.

  FLAGS  allow-oom
  KEYS   meta config wake
  ARGV   version byte ('' for the one it has), then field and value of each setting
  REPLY  1 written, 0 the partition has this version or a newer one
  COST   O(fields); 4 commands
]]
-- @bind

call('HSETNX', meta, 'mark', 0)
local kept = call('HMGET', config, 'version', 'byte')
local old = string.byte(kept[2] or '') or 0
local new = string.byte(byte) or old
if new < old or (new == old and version <= tonumber(kept[1] or 0)) then
  return 0
end
call('HSET', config, 'version', version, unpack(ARGV, 3))
call('ZADD', wake, 0, '1')
return 1
