-- What a topic keeps for a replay (docs/decisions/0055): of each group what it has finished with, by when, and, once
-- no group owes a message, its body. `kept_bodies` has two fields of a message: its body under its id and, where there
-- are any, its number and message group, a tab and its message keys under a zero byte and its id.
local KEPT_OVERHEAD, CALLS_PER_MS = 256, 2048 -- what a time has behind its point until 2109

-- These are kept no more. Returns the bytes that they took.
local function drop_kept(keys, ids)
  local fields, bytes = {}, 0
  for i, id in ipairs(ids) do
    fields[2 * i - 1], fields[2 * i] = id, '\0' .. id
    bytes = bytes + KEPT_OVERHEAD + call('HSTRLEN', keys.kept_bodies, id)
  end
  call('HDEL', keys.kept_bodies, unpack(fields))
  call('HINCRBY', keys.meta, 'kept_bytes', -bytes)
  call('ZREM', keys.kept, unpack(ids))
  return bytes
end

-- Who of these is owed to nobody but this group.
local function owed_here(pending, byte, ids)
  local owed, last = call('HMGET', pending, unpack(ids)), {}
  for i, id in ipairs(ids) do
    last[#last + 1] = (not owed[i] or owed[i] == byte) and id or nil
  end
  return last
end

-- An earlier life of an id ends where the next one is kept.
local function drop_earlier(keys, ids)
  local before = {}
  for i, score in ipairs(call('ZMSCORE', keys.kept, unpack(ids))) do
    before[#before + 1] = score and ids[i] or nil
  end
  if #before > 0 then
    drop_kept(keys, before)
  end
end

-- Their message groups and message keys, where they have some; false where they have none.
local function details_of(keys, clock, ids)
  local slots = clock.order and call('HMGET', keys.message_groups, unpack(ids)) or {}
  local named, details = call('HLEN', keys.keyed) > 0 and call('HMGET', keys.keyed, unpack(ids)) or {}, {}
  for i = 1, #ids do
    details[i] = (slots[i] or named[i]) and string.match(slots[i] or '', '^%Z*') .. '\t' .. (named[i] or '')
  end
  return details
end

-- The index comes before the bodies: what a cut leaves is dropped when its time is over.
local function keep_bodies(keys, clock, at, ids)
  local index, rows, bytes, details = {}, {}, 0, details_of(keys, clock, ids)
  for i, body in ipairs(call('HMGET', keys.bodies, unpack(ids))) do
    if body then
      index[#index + 1], index[#index + 2] = at, ids[i]
      rows[#rows + 1], rows[#rows + 2] = ids[i], body
      bytes = bytes + KEPT_OVERHEAD + #body
    end
    if body and details[i] then
      rows[#rows + 1], rows[#rows + 2] = '\0' .. ids[i], details[i]
    end
  end
  if #index > 0 then
    call('HINCRBY', keys.meta, 'kept_bytes', bytes)
    call('ZADD', keys.kept, unpack(index))
    call('HSET', keys.kept_bodies, unpack(rows))
  end
end

-- Calls of one millisecond are told apart, so that the order of `consumed` is that of the calls.
local function keep(keys, clock, byte, ids)
  local newest = tonumber(call('ZRANGE', keys.consumed, '-1', '-1', 'WITHSCORES')[2] or 0)
  local behind = math.max(0, (newest - clock.now) * CALLS_PER_MS + 1)
  local at = clock.now + math.min(behind, CALLS_PER_MS - 1) / CALLS_PER_MS
  local scored = {}
  for i, id in ipairs(ids) do
    scored[2 * i - 1], scored[2 * i] = at, id
  end
  call('ZADD', keys.consumed, unpack(scored))
  local last = owed_here(keys.pending, byte, ids)
  if #last > 0 then
    drop_earlier(keys, last)
    keep_bodies(keys, clock, at, last)
  end
end
