local call = redis.call
--[[ feed_dlq_group.lua: dead (of one group) -> ready (of a group that consumes its dead letters, a view)

  Every dead letter once, in the order in which they died: the view remembers how far it has come. More
  may die in the millisecond that it is now, so up to a thousand of these are remembered, and the others
  are for a later one. One that is sent back and dies again is another one. A mark in the view's deaths
  says that it owes the dead letter, which stays where it is.

  FLAGS  allow-oom
  KEYS   meta config dead ready attempts failures deaths wake events counters
  ARGV   group worker limit
  REPLY  dead letters fed
  COST   O((limit + 1000) * log dead); 16 commands, 1 for each halving of those of one millisecond
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include behind

-- @bind
local REMEMBERED = 1000

local kept = call('HMGET', config, 'view', 'fed_at', 'fed_ids', 'fed_to')
if kept[1] ~= '1' then
  return 0
end
local clock = read_clock(meta)
local known, count = {}, 0
for id in string.gmatch(kept[3] or '', '%S+') do
  known[id], count = true, count + 1
end
local rank = kept[2] and rank_behind(dead, kept[2], kept[4] or '') or 0
local page = call('ZRANGE', dead, rank, rank + limit + count - 1, 'WITHSCORES')
local ids, marks, last, latest = {}, {}, kept[2], { kept[3] }
-- Fed at another time, so only where its millisecond is over nothing is lost by going on from its id.
local function choose()
  for i = 1, #page, 2 do
    local id, at = page[i], page[i + 1]
    if at ~= last then
      last, latest, count = at, {}, 0
    end
    if not (at == kept[2] and known[id]) then
      local may_grow = tonumber(at) >= clock.now
      if #ids == limit or may_grow and count >= REMEMBERED then
        return
      end
      ids[#ids + 1] = id
      marks[#marks + 1], marks[#marks + 2] = id, at
      if may_grow then
        latest[#latest + 1], count = id, count + 1
      end
    end
  end
end
choose()
if #ids == 0 then
  return 0
end
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
local to = tonumber(last) < clock.now and ids[#ids] or ''
call('HSET', config, 'fed_at', last, 'fed_ids', table.concat(latest, ' '), 'fed_to', to)
call('HINCRBY', counters, 'publish:' .. group, #ids)
if length == #ids then
  call('ZADD', wake, 0, '1')
end
append_history(clock, meta, events, 'feed', group, worker, ids, '', '')
return #ids
