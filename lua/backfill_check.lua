local call = redis.call
--[[ backfill_check.lua: read only; one page of what is stored and not owed by a group that catches up

  Messages move while their places are read, so one could be missed; every stored message is among
  the bodies, also what is scheduled and has no group yet; and large ones that a call has left
  behind (include/unadopted.lua), which are not messages. Values are read with their names (without
  them needs Redis 7.4), so a page is short where bodies may be large.

  FLAGS  no-writes
  KEYS   meta config bodies pending big incoming
  ARGV   cursor ('0' at first)
  REPLY  next cursor ('0' at the end), ids
  COST   O(page); 5 commands, 1 more where a call has left large bodies behind, and 2 for each
]]
-- @include ownership
-- @include unadopted

-- @bind keys
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
  local left = call('HLEN', incoming) > 0 and call('HMGET', incoming, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local has = owed[i] and owns(byte, owed[i])
    missed[#missed + 1] = not (has or left[i] and is_unadopted(keys, id)) and id or nil
  end
end
return { page[1], missed }
