local call = redis.call
--[[ feed_dlq_group.lua: dead (of one group) -> ready (of a group that consumes its dead letters, a view)

  Every dead letter once, in the order in which they died: the view remembers how far it has come,
  and which ones of that very millisecond it has had. One that is sent back and dies again is another
  one. A mark in the view's deaths says that it owes the dead letter, which stays where it is.

  FLAGS  allow-oom
  KEYS   meta config dead ready attempts failures deaths wake events counters
  ARGV   group worker limit
  REPLY  dead letters fed
  COST   O(limit * log dead); 13 commands
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state

-- @bind

local kept = call('HMGET', config, 'view', 'fed_at', 'fed_ids')
if kept[1] ~= '1' then
  return 0
end
local known, count = {}, 0
for id in string.gmatch(kept[3] or '', '%S+') do
  known[id], count = true, count + 1
end
local page = call('ZRANGEBYSCORE', dead, kept[2] or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, limit + count)
local ids, marks, last = {}, {}, kept[2] or ''
local latest = { kept[3] or '' }
local function skip_fed()
  for i = 1, #page, 2 do
    local id, at = page[i], page[i + 1]
    if not (known[id] and at == kept[2]) then
      ids[#ids + 1] = id
      marks[#marks + 1], marks[#marks + 2] = id, at
      if at ~= last then
        last, latest = at, {}
      end
      latest[#latest + 1] = id
    end
  end
end
skip_fed()
if #ids == 0 then
  return 0
end
local clock = read_clock(meta)
local entries, begun = call('HMGET', attempts, unpack(ids)), {}
for i, id in ipairs(ids) do
  if entries[i] then
    begun[#begun + 1], begun[#begun + 2] = id, spell_entry(read_entry(entries[i]) + 1, 1, 0, 0)
  end
end
call('HSET', deaths, unpack(marks))
if #begun > 0 then
  call('HSET', attempts, unpack(begun))
  call('HDEL', failures, unpack(ids))
end
local length = call('RPUSH', ready, unpack(ids))
call('HSET', config, 'fed_at', last, 'fed_ids', table.concat(latest, ' '))
call('HINCRBY', counters, 'publish:' .. group, #ids)
if length == #ids then
  call('ZADD', wake, 0, '1')
end
append_history(clock, meta, events, 'feed', group, worker, ids, '', '')
return #ids
