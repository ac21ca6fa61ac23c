local call = redis.call
--[[ backfill_check.lua: read only; one page of what is stored and not owed by a group that catches up

  Messages move while their places are read, so one could be missed; every stored message is among
  the bodies, also what is scheduled and has no group yet. Values are read with their names (without
  them needs Redis 7.4), so a page is short where bodies may be large.

  FLAGS  no-writes
  KEYS   meta config bodies pending big
  ARGV   cursor ('0' at first)
  REPLY  next cursor ('0' at the end), ids
  COST   O(page); 4 commands
]]
-- @include ownership

-- @bind
local PAGE, SHORT_PAGE = 500, 16

local byte = call('HGET', config, 'byte')
local count = call('HLEN', big) > 0 and SHORT_PAGE or PAGE
local page = call('HSCAN', bodies, cursor, 'COUNT', count)
local ids, missed = {}, {}
for i = 1, #page[2], 2 do
  ids[#ids + 1] = page[2][i]
end
if byte and #ids > 0 then
  local owed = call('HMGET', pending, unpack(ids))
  for i, id in ipairs(ids) do
    local has = owed[i] and owns(byte, owed[i])
    missed[#missed + 1] = not has and id or nil
  end
end
return { page[1], missed }
