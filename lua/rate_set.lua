local call = redis.call
--[[ rate_set.lua: a group's rate limit, as stored in its token bucket; newer wins

  The bucket lies in a slot of its own, since all partitions of the group draw from it. A new limit
  starts with one token, so that the first message need not wait and the first seconds hold it too.

  FLAGS  allow-oom
  KEYS   bucket
  ARGV   version tokens_per_ms ('' for no limit) burst
  REPLY  1 written, 0 the bucket has this version or a newer one, or there is nothing to forget
  COST   O(1); 4 commands
]]
-- @include clock
-- @include logical

-- @bind

local kept = call('HMGET', bucket, 'version', 'tokens')
if version <= tonumber(kept[1] or 0) or (tokens_per_ms == '' and not kept[1]) then
  return 0
end
if tokens_per_ms == '' then
  call('HSET', bucket, 'version', version, 'per_ms', '')
  return 1
end
local clock = read_clock(bucket)
local tokens = math.min(burst, tonumber(kept[2] or 1))
call('HSET', bucket, 'mark', clock.now, 'offset', clock.offset, 'per_ms', tokens_per_ms, 'burst', burst,
  'tokens', tokens, 'at', clock.now, 'version', version)
return 1
