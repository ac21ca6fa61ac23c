local call = redis.call
--[[ leave.lua: a group that holds nothing more in this partition is forgotten here

  The last step of unsubscribing. The route has lost the group and what it held was dropped and
  purged; whatever moved meanwhile (a lease that ended, a retry that was promoted) is counted, and
  nothing is deleted before the count is 0.

  FLAGS  allow-oom
  KEYS   meta counters config attempts failures tracebacks deaths fingerprints due wake consumed positions
         ready retry heads inflight dead order, then levels
  ARGV   group membership ('' or the byte that the group had: under another one nothing is done) stuck ('1':
         what is held could not be removed; a message that is out, but lost, holds up nobody any more)
  REPLY  messages that the group still holds; 0 where it has joined again
  COST   O(levels); 8 commands and 1 a level; what is left of big keys is freed in the background
]]
-- @include membership

-- @bind
local FIRST_ZSET = 16

if joined_again(call('HGET', config, 'byte'), membership) then
  return 0
end
local held = call('LLEN', ready) + call('LLEN', retry)
for i = FIRST_ZSET, #KEYS do
  held = held + call('ZCARD', KEYS[i])
end
if held > 0 then
  if stuck then
    call('UNLINK', heads)
  end
  return held
end
local own = {}
for _, name in ipairs(call('HKEYS', counters)) do
  own[#own + 1] = string.sub(name, -#group - 1) == ':' .. group and name or nil
end
if #own > 0 then
  call('HDEL', counters, unpack(own))
end
for i = 3, 12 do
  call('UNLINK', KEYS[i])
end
call('UNLINK', heads)
return 0
