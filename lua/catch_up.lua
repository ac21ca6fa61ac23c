local call = redis.call
--[[ catch_up.lua: stored -> ready of one more group

  A group that asked for what is still stored gets it page by page, from the places of the groups
  that have it (and from its own: what only it has is marked as such). A message without an entry
  belongs to the one group in whose place it lies, so that group's byte is written first; then the
  message is listed, then owed: a cut in between leaves a leftover that nobody leases. The group is
  paused meanwhile, and a call that comes after it went on writes nothing. The lease number is the
  time, above every number that the group gave out before. Pages of a list come from its tail and go
  to the head of the ready list, so the order stays, and what is published meanwhile is behind it.

  FLAGS  none
  KEYS   meta config ready attempts bodies pending events counters location (a list or sorted set of the
         other group)
  ARGV   group actor structure ('list' | 'zset') owner (the byte of the other group) offset count
  REPLY  size of the page, messages given, messages marked; or -1 0 0: the group has caught up
  COST   O(count) and the way to the offset; 12 commands and 1 a message
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include message_group_order

-- @bind

local settings = call('HMGET', config, 'byte', 'catching_up')
if settings[2] ~= '1' then
  return { -1, 0, 0 }
end
local byte, clock = settings[1], read_clock(meta)
local function read_page()
  if structure == 'list' then
    return call('LRANGE', location, -(offset + count), -(offset + 1))
  end
  return call('ZRANGE', location, offset, offset + count - 1)
end
local ids = read_page()
if #ids == 0 then
  return { 0, 0, 0 }
end
for i, member in ipairs(ids) do
  local name = string.match(member, '^(%Z+)%z')
  ids[i] = name and id_of_member(member, name) or member -- an ordered group keeps its messages in its order
end

local noted, seen = call('HMGET', pending, unpack(ids)), {}
local marked, given, listed, owed, numbers = {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  if not seen[id] and call('HEXISTS', bodies, id) == 1 then
    local entry = noted[i] or owner
    if not noted[i] then
      marked[#marked + 1], marked[#marked + 2] = id, owner
    end
    if not owns(byte, entry) then
      given[#given + 1] = id
      owed[#owed + 1], owed[#owed + 2] = id, entry .. byte
      numbers[#numbers + 1], numbers[#numbers + 2] = id, spell_entry(clock.now, 1, 0, 0)
    end
  end
  seen[id] = true
end
if #marked > 0 then
  call('HSET', pending, unpack(marked))
end
for i = #given, 1, -1 do
  listed[#listed + 1] = given[i]
end
if #given > 0 then
  call('LPUSH', ready, unpack(listed))
  call('HSET', attempts, unpack(numbers))
  call('HSET', pending, unpack(owed))
  call('HINCRBY', counters, 'publish:' .. group, #given)
  append_history(clock, meta, events, 'subscribe', group, actor, given, '', '')
end
return { #ids, #given, #marked / 2 }
