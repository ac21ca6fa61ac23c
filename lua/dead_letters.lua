local call = redis.call
--[[ dead_letters.lua: read only; one page of a group's dead letters in one partition, oldest first

  FLAGS  no-writes
  KEYS   meta dead deaths failures bodies big tracebacks
  ARGV   offset count with_bodies ('1' | '0') byte_limit
  REPLY  now_ms, total, ids, dead since, deaths, failure records, bodies ('' when not asked for)
  COST   O(log dead + count); 7 commands
]]
-- @include clock
-- @include logical

-- @bind
local SMALL = 8192

local clock = read_clock(meta)
local total = call('ZCARD', dead)
local page = call('ZRANGE', dead, offset, offset + count - 1, 'WITHSCORES')
local ids, since, bytes = {}, {}, 0
for i = 1, #page, 2 do
  local size = with_bodies and tonumber(call('HGET', big, page[i]) or SMALL) or 0
  bytes = bytes + size
  if bytes > byte_limit and #ids > 0 then
    break
  end
  ids[#ids + 1], since[#since + 1] = page[i], page[i + 1]
end
if #ids == 0 then
  return { clock.now, total, {}, {}, {}, {}, {} }
end
local function texts(key)
  local found = call('HMGET', key, unpack(ids))
  for i = 1, #ids do
    found[i] = found[i] or ''
  end
  return found
end
return { clock.now, total, ids, since, texts(deaths), texts(failures), with_bodies and texts(bodies) or {} }
