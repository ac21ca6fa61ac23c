local call = redis.call
--[[ subscribe.lua: install a newer route; backlog -> ready of the topic's first group

  The catalog decides which groups a topic has and who was first; this copies its word into one
  partition, newer wins. Until the first group comes, messages wait in the backlog, and it takes all
  of them: by renaming the list, or in bounded steps when its own list is not empty. An ordered group
  takes it in bounded steps, message group by message group, and the route is installed with the last
  step: until then what is published goes behind what waits.

  What a client read before the server went back to older data names groups by bytes that are counted
  again. So it says which incarnation of the data the route belongs to, and of another one it is not
  installed.

  FLAGS  allow-oom
  KEYS   meta backlog ready wake counters order heads message_groups (ready, wake, order and heads
         of the first group)
  ARGV   here version route_table group ('' when the topic has none) limit max_messages (0 for no limit)
         ordered ('1' where the first group is) history_bytes ('0': as it is) history_ms ('0' for any age)
         keep_ms keep_bytes ('0' where no bodies are kept)
         queued ('1' where it orders messages without a message group, too)
  REPLY  messages still in the backlog, or the incarnation, where it is another one
  COST   O(1), O(limit) when the ready list is not empty or the group is ordered; 13 commands
]]
-- @include clock
-- @include incarnation
-- @include logical
-- @include ownership
-- @include message_group_order

-- @bind keys
local clock = read_clock(meta)

local function install()
  if version > tonumber(call('HGET', meta, 'route') or 0) then
    call('HSET', meta, 'route', version, 'table', route_table, 'most', max_messages)
    if history_bytes ~= '0' then
      call('HSET', meta, 'limit', history_bytes, 'history_ms', history_ms)
    end
    if keep_ms ~= '0' or call('HEXISTS', meta, 'keep_ms') == 1 then
      call('HSET', meta, 'keep_ms', keep_ms, 'keep_bytes', keep_bytes)
    end
  end
end

local function slots_of(ids)
  local slots, rest = call('HMGET', message_groups, unpack(ids)), {}
  for i, id in ipairs(ids) do
    rest[#rest + 1] = queued and not slots[i] and id or nil
  end
  local slot_of = #rest > 0 and number_messages(clock, meta, message_groups, rest, {}) or {}
  for i, id in ipairs(ids) do
    slots[i] = slots[i] or slot_of[id]
  end
  return slots
end

local function take_in_order(ids)
  local out, new_heads = enter_order(keys, ids, slots_of(ids), {})
  if #out > 0 then
    call('RPUSH', ready, unpack(out))
  end
  set_heads(keys, new_heads)
  call('LTRIM', backlog, #ids, -1)
  return #ids
end

local incarnate = incarnation()
if incarnate ~= here then
  return incarnate
end
call('HSETNX', meta, 'mark', 0)
call('HSETNX', meta, 'epoch', clock.now) -- of the history, for its readers: another one, where all begins anew
local waiting = call('LLEN', backlog)
if waiting <= limit or not ordered then
  install()
end
if waiting == 0 or group == '' then
  return 0
end
local taken = waiting
if ordered then
  taken = take_in_order(call('LRANGE', backlog, 0, limit - 1))
elseif call('EXISTS', ready) == 0 then
  call('RENAME', backlog, ready)
else
  taken = math.min(waiting, limit)
  for _ = 1, taken do
    call('LMOVE', backlog, ready, 'LEFT', 'RIGHT')
  end
end
call('HINCRBY', counters, 'publish:' .. group, taken)
call('ZADD', wake, 0, '1')
return waiting - taken
