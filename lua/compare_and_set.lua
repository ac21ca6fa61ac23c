local call = redis.call
--[[ compare_and_set.lua: replace one record of the catalog if nobody else has in the meantime

  The catalog (topics, groups, settings) is changed by read, decide, swap. Deciding is done by the
  caller; this makes the last step atomic. An empty replacement deletes the record.

  FLAGS  allow-oom
  KEYS   meta records
  ARGV   field expected ('' for a new record) replacement
  REPLY  1 swapped, 0 the record is another one now
  COST   O(1); 2 commands
]]
-- @bind

if (call('HGET', records, field) or '') ~= expected then
  return 0
end
if replacement == '' then
  call('HDEL', records, field)
else
  call('HSET', records, field, replacement)
end
return 1
