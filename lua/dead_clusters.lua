local call = redis.call
--[[ dead_clusters.lua: read only; a group's dead letters by fingerprint in one partition, one page

  FLAGS  no-writes
  KEYS   deaths failures fingerprints
  ARGV   first (where the page begins, as ZRANGEBYLEX takes it; '' at the beginning) count
  REPLY  of each fingerprint the oldest member, the newest, how many there are, and of the newest its cause
         and failure record
  COST   O(count * log dead); 2 commands and 3 a fingerprint
]]
-- @include texts
-- @bind
local oldest, newest, counts, ids = {}, {}, {}, {}
first = first == '' and '-' or first
for n = 1, count do
  local member = call('ZRANGEBYLEX', fingerprints, first, '+', 'LIMIT', 0, 1)[1]
  if not member then
    break
  end
  first = '(' .. string.match(member, '^%Z*') .. '\1' -- of the next fingerprint
  oldest[n], counts[n] = member, call('ZLEXCOUNT', fingerprints, '[' .. member, first)
  newest[n] = call('ZREVRANGEBYLEX', fingerprints, first, '[' .. member, 'LIMIT', 0, 1)[1]
  ids[n] = string.match(newest[n], '[^%z]*$')
end
return { oldest, newest, counts, texts(deaths, ids), texts(failures, ids) }
